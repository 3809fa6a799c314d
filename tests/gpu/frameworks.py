#!/usr/bin/env python3
"""make gpu-frameworks: PyTorch, JAX, CuPy and Triton programs with and without the shim.

Every program of tests/gpu/frameworks that can be run by --python is run some times without the shim (are its results
the same every time?), with the shim when everything fits, and with it in 1/1.5, 1/2 and 1/3 of the memory it needs.
Results must be equal as far as the framework's own are.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading

import harness

FACTORS = (1.5, 2.0, 3.0)
OVERHEAD_BOUND = 1.01  # of a training step when everything fits
MARK = "RESULT "


class Variant:
    """A program with options and settings of its framework. Nothing of these is set unless it is named here."""

    def __init__(self, name, script, arguments=(), environment=None, processes=1, known_limit=None, caches=False,
                 simulated=False):
        self.name = name
        self.script = script
        self.arguments = list(arguments)
        self.environment = environment or {}
        self.processes = processes
        self.known_limit = known_limit  # why it may fail under the shim, as docs/compatibility.md says
        self.simulated = simulated  # runs on the simulated GPU too, having no kernels
        self.caches = caches  # gives back what it caches when an allocation fails: LMS_SOFT_LIMIT is for it


def torch_allocator(setting):
    return {"PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}


OWN_MEMORY = "memory that a program maps itself is not managed"
VARIANTS = [
    Variant("torch, memory alone", "torch_memory.py", caches=True, simulated=True),
    Variant("torch, memory alone, cudaMallocAsync", "torch_memory.py", environment=torch_allocator("backend:cudaMallocAsync"),
            simulated=True),
    Variant("torch", "torch_train.py", caches=True),
    Variant("torch, cudaMallocAsync", "torch_train.py", environment=torch_allocator("backend:cudaMallocAsync")),
    Variant("torch, expandable segments", "torch_train.py", environment=torch_allocator("expandable_segments:True"),
            known_limit=OWN_MEMORY),
    Variant("torch, DataLoader workers", "torch_train.py", ["--workers", "2"]),
    Variant("torch, AMP", "torch_amp.py"),
    Variant("torch, CUDA graphs", "torch_graphs.py"),
    Variant("torch.compile", "torch_compile.py"),
    Variant("torch.compile, reduce-overhead", "torch_compile.py", ["--mode", "reduce-overhead"]),
    Variant("torch.compile, max-autotune", "torch_compile.py", ["--mode", "max-autotune"]),
    Variant("torch.compile, max-autotune-no-cudagraphs", "torch_compile.py", ["--mode", "max-autotune-no-cudagraphs"]),
    Variant("torch, DDP with gloo, 2 processes", "torch_ddp_gloo.py", processes=2),
    Variant("torch, tensor IPC", "torch_ipc.py", processes=2, known_limit="the driver has no IPC for managed buffers"),
    # With the shim this is set up (LMS_FRAMEWORKS), without it not.
    Variant("jax", "jax_train.py", environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
    Variant("jax, cuda_async", "jax_train.py", environment={"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}),
    Variant("jax, platform allocator", "jax_train.py", environment={"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
    Variant("cupy", "cupy_ops.py"),
    Variant("triton", "triton_kernel.py"),
]


def read_result(text):
    for line in reversed(text.splitlines()):
        if line.startswith(MARK):
            try:
                return json.loads(line[len(MARK):])
            except ValueError:
                return None
    return None


def spread(a, b):
    """The largest relative difference of two runs' losses."""
    if len(a["losses"]) != len(b["losses"]):
        return float("inf")
    pairs = [(float.fromhex(x), float.fromhex(y)) for x, y in zip(a["losses"], b["losses"])]
    return max((abs(x - y) / max(abs(x), abs(y), 1e-30) for x, y in pairs), default=0.0)


class Determinism:
    """How far runs of the framework without the shim agree, and whether one with it agrees as far."""

    ROOM = 4  # times what was seen: a few runs show little of how far others may be apart

    def __init__(self, references):
        self.references = references
        first = references[0]
        self.exact = all(r["digest"] == first["digest"] and r["losses"] == first["losses"] for r in references)
        self.seen = max(spread(a, b) for a in references for b in references)

    def describe(self):
        return "the same bits every time" if self.exact else f"losses differ by up to {self.seen:.1e}"

    def distance(self, found):
        return min(spread(reference, found) for reference in self.references)

    def accepts(self, found):
        if self.exact:
            return found["digest"] == self.references[0]["digest"] and found["losses"] == self.references[0]["losses"]
        return self.distance(found) <= self.ROOM * self.seen

    def difference(self, found):
        return f"other results: losses differ by {self.distance(found):.1e}"


class Busy:
    """Samples how busy the GPU is while a block runs; of nvidia-smi, which only reads."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.samples = []

    def __enter__(self):
        self.process = None
        if self.wanted:
            try:
                self.process = subprocess.Popen(
                    ["nvidia-smi", "-i", "0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                self.reader = threading.Thread(target=self._read)
                self.reader.start()
            except OSError:
                pass
        return self

    def _read(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.samples.append(int(line))

    def __exit__(self, *_):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.reader.join()

    def percent(self):
        # The start and end of the process keep the GPU idle; training is where it is not.
        busy = [s for s in self.samples if s > 0]
        return round(statistics.mean(busy)) if busy else None


class Frameworks:
    def __init__(self, options, session):
        self.options = options
        self.session = session
        self.notes = []
        self.rows = []

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def command(self, variant, *more):
        script = os.path.join(self.options.scripts, variant.script)
        return [self.options.python, script, *variant.arguments, *more]

    def why_not(self, variant):
        """Why a variant cannot run here; None where it can."""
        if not os.path.exists(os.path.join(self.options.scripts, variant.script)):
            return f"{variant.script} is not there"
        run = self.session.run(self.command(variant, "--probe"), environment=variant.environment, seconds=120)
        found = read_result(run.out)
        if found is None:
            return f"{variant.script} --probe: {run.ending()}: {run.last_words()}"
        return None if found.get("available") else found.get("why", "it does not say why")

    def run_one(self, variant, shim):
        return self.session.run(self.train_command(variant), shim, variant.environment, self.options.run_seconds)

    def train_command(self, variant):
        return self.command(variant, "--mib", str(self.options.mib), "--steps", str(self.options.steps))

    def add(self, variant, case, verdict, run=None, found=None, bare=None, reached=None, busy=None):
        row = {"variant": variant.name, "case": case, "verdict": verdict,
               "settings": variant.environment, "arguments": variant.arguments}
        if run is not None:
            row.update(seconds=round(run.seconds, 2), stats=run.stats, processes=len(run.processes))
        if reached:
            row["factor_reached"] = round(reached, 2)
        if busy is not None:
            row["gpu_busy_percent"] = busy
        if found is not None:
            row["result"] = found
            row["steps_per_second"] = 1 / found["step_seconds"]
            for key, name in (("bytes_in", "gbps_in"), ("bytes_out", "gbps_out")):
                row[name] = run.stats.get(key, 0) / 1e9 / found["train_seconds"]
            if bare is not None:
                row["slowdown"] = found["step_seconds"] / bare
        self.rows.append(row)
        print(f"{variant.name}, {case}: {verdict}", file=sys.stderr)

    def verdict(self, variant, run, determinism, squeezed, soft=False):
        found = read_result(run.out)
        if run.status != 0 or found is None:
            why = f"{run.ending()}: {run.last_words()}"
            return (f"not supported ({variant.known_limit}): {why}" if variant.known_limit else why), found
        if not run.stats:
            why = "the shim saw no allocation"
            return (f"not supported ({variant.known_limit})" if variant.known_limit else why), found
        if not determinism.accepts(found):
            return determinism.difference(found), found
        if squeezed and not run.moved and not soft:
            return "nothing moved", found
        if not squeezed and run.moved:
            return "moved though everything fits", found
        return "same" if determinism.exact else "same, as far as the framework's own", found

    def check(self, variant):
        # In turn, for the GPU's clock is not the same all the time.
        bare_runs, fitting = [], []
        for _ in range(max(2, self.options.repeats)):
            bare_runs.append(self.run_one(variant, None))
            if bare_runs[-1].status == 0:
                fitting.append(self.run_one(variant, {}))
        results = [read_result(run.out) for run in bare_runs]
        for run, found in zip(bare_runs, results):
            if run.status != 0 or found is None:
                return self.add(variant, "without the shim", f"fails without the shim: {run.ending()}: {run.last_words()}", run)
        determinism = Determinism(results)
        self.note(f"{variant.name}: without the shim, {determinism.describe()}")
        bare = statistics.median(found["step_seconds"] for found in results)
        self.add(variant, "without the shim", "reference", bare_runs[0], results[0], bare)

        verdicts = [self.verdict(variant, run, determinism, squeezed=False) for run in fitting]
        worst = next((i for i, (verdict, _) in enumerate(verdicts) if not verdict.startswith("same")), 0)
        run, (verdict, found) = fitting[worst], verdicts[worst]
        times = [r["step_seconds"] for r in (read_result(f.out) for f in fitting) if r]
        if found is not None and times:
            found = {**found, "step_seconds": statistics.median(times)}
        self.add(variant, "fits", verdict, run, found, bare)
        need = run.stats.get("peak_resident_bytes", 0)
        if need == 0:
            return None
        processes = max(len(run.processes), 1)
        if processes != variant.processes:
            self.note(f"{variant.name}: {processes} processes had managed memory, {variant.processes} were expected")
        squeeze = harness.Squeeze(self.session, self.train_command(variant), need, processes, {}, variant.environment,
                                  self.options.run_seconds)
        for factor in FACTORS:
            if self.session.time_left() < 1:
                self.add(variant, f"{factor:g}x", "not run: no time left")
                continue
            with Busy(not self.session.simulated) as busy:
                run, reached = squeeze.at(factor)
            verdict, found = self.verdict(variant, run, determinism, squeezed=True)
            self.add(variant, f"{factor:g}x", verdict, run, found, bare, reached, busy.percent())
            if variant.caches:
                with Busy(not self.session.simulated) as busy:
                    run, reached = squeeze.at(factor, {"LMS_SOFT_LIMIT": str(int(need / factor / processes))})
                verdict, found = self.verdict(variant, run, determinism, squeezed=True, soft=True)
                self.add(variant, f"{factor:g}x, soft limit", verdict, run, found, bare, reached, busy.percent())
        return None

    def check_on_cpu(self, variant):
        """The program itself, where no device is that the framework takes: does it run, also beside the shim?"""
        command = self.command(variant, "--mib", "1", "--steps", "2")
        runs = [self.session.run(command, shim, variant.environment, self.options.run_seconds) for shim in (None, None, {})]
        results = [read_result(run.out) for run in runs]
        for run, found in zip(runs, results):
            if run.status != 0 or found is None:
                return self.add(variant, "on the CPU", f"{run.ending()}: {run.last_words()}", run)
        determinism = Determinism(results[:2])
        same = determinism.accepts(results[2])
        return self.add(variant, "on the CPU", "same" if same else determinism.difference(results[2]), runs[2], results[2])

    def check_all(self):
        for variant in VARIANTS:
            if self.options.only and not {variant.name, variant.script.removesuffix(".py")} & set(self.options.only):
                continue
            if self.session.time_left() < 1:
                self.note(f"not run: {variant.name}: no time left")
                continue
            missing = self.why_not(variant)
            if missing is not None:
                self.note(f"not run: {variant.name}: {missing}")
                continue
            if self.options.on_cpu and not variant.simulated:
                self.check_on_cpu(variant)
            else:
                self.check(variant)


def as_table(rows):
    header = ("program", "case", "verdict", "need / budget", "step ms", "slowdown", "GB/s in", "GB/s out", "GPU busy %", "peak MiB")
    lines = []
    for row in rows:
        found = row.get("result") or {}
        lines.append((row["variant"], row["case"], row["verdict"], row.get("factor_reached", "-"),
                      f"{1e3 * found['step_seconds']:.1f}" if found else "-",
                      f"{row['slowdown']:.3f}" if "slowdown" in row else "-", f"{row.get('gbps_in', 0):.1f}",
                      f"{row.get('gbps_out', 0):.1f}", row.get("gpu_busy_percent", "-"),
                      found.get("peak_bytes", 0) >> 20 if found else "-"))
    return header, lines


def acceptable(row):
    return row["verdict"] == "reference" or row["verdict"].startswith(("same", "not supported"))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default=os.path.join(harness.ROOT, "build"), help="folder of the build")
    parser.add_argument("--sim", action="store_true", help="the GPU that is here is the simulated one, which no framework takes")
    parser.add_argument("--on-cpu", action="store_true",
                        help="run the programs on the CPU, to find errors in them (tests/gpu/on_cpu)")
    parser.add_argument("--out", help="folder for the results; docs/gpu, or with --sim build/gpu/results")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the frameworks")
    parser.add_argument("--scripts", default=os.path.join(harness.ROOT, "tests", "gpu", "frameworks"),
                        help="folder of the programs")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help="only this program (torch_train) or variant (\"torch, AMP\"); may be given several times")
    parser.add_argument("--mib", type=int, default=2048, help="device memory a program works through, about")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3, help="runs behind each overhead figure")
    parser.add_argument("--run-seconds", type=int, default=240, help="a run that takes longer is stopped")
    parser.add_argument("--seconds", type=int, default=3600, help="no run starts later than this")
    return parser.parse_args()


def main():
    options = parse()
    try:
        session = harness.Session("frameworks", options)
    except harness.Unusable as why:
        return harness.fail("gpu-frameworks", why)
    session.base["PYTHONDONTWRITEBYTECODE"] = "1"
    if options.on_cpu:
        options.mib, options.steps = min(options.mib, 256), min(options.steps, 6)
        options.repeats = 1
        session.base["PYTHONPATH"] = os.path.join(harness.ROOT, "tests", "gpu", "on_cpu")
    frameworks = Frameworks(options, session)
    frameworks.check_all()
    rows = frameworks.rows
    for row in rows:
        if row["case"] == "fits" and row.get("slowdown", 0) > OVERHEAD_BOUND:
            frameworks.note(f"{row['variant']}: overhead when everything fits is {100 * (row['slowdown'] - 1):.1f} %, "
                            f"more than the {100 * (OVERHEAD_BOUND - 1):.0f} % it must reach")
    good = harness.write_results(session, "Frameworks with and without the shim", "runs", rows, "variant", acceptable,
                                 as_table, frameworks.notes)
    session.close()
    if not rows:
        return harness.fail("gpu-frameworks", f"nothing was run: {options.python} has none of the frameworks")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
