#!/usr/bin/env python3
"""make gpu-check: ordinary CUDA programs with and without the shim on the GPU that is here.

Every program runs without the shim, with it when everything fits, and with it in 1/1.5, 1/2 and 1/3 of the memory its
buffers need; status and output must be the same, byte for byte, and in too little memory data must have moved. The
programs verify every value themselves or print a digest of all results.
"""

import argparse
import concurrent.futures
import os
import shlex
import statistics
import sys

import harness

FACTORS = (1.5, 2.0, 3.0)
SAFETY = ("args", "opaque", "strict")
# Buffers of the programs are small: all of them are to be managed.
SHIM = {"LMS_THRESHOLD": "16K"}

# Every program of tests/apps is run, those not named here in half of the memory they need.
# Their memory is not managed, is kept on the GPU, or is next to nothing.
FITTING = ("arrays", "devices", "errors", "graph_nodes", "runtime_calls", "textures")
# The engine's own ground: in every budget, first of all.
THOROUGH = ("patterns", "vector_add", "streams", "per_thread", "threads", "malloc_async", "graphs", "own_vmm", "sgemm")
# Pointers in memory that the host has written.
TABLES = ("host_lists", "pointer_tables")
# Pointers that no argument shows. Writes through them may be lost at `args`: that is what it says.
HIDDEN = ("linked_list", "hidden_pointers")
LIBRARIES = {"cublas_gemm": "cuBLAS", "cudnn_conv": "cuDNN"}
# Not programs of their own.
OF_THIS_FOLDER = ("own_vmm",)


def names_of_apps():
    """By the sources, so that none is left out because it was not built."""
    folder = os.path.join(harness.ROOT, "tests", "apps")
    found = set()
    for entry in os.scandir(folder):
        if entry.is_dir() or entry.name.endswith(".cu"):
            found.add(entry.name.removesuffix(".cu"))
    return sorted(found)


class Program:
    """A program as one linkage of the runtime has it, and what is asked of it."""

    def __init__(self, name, runtime, command, foreign=False):
        self.name = name
        self.runtime = runtime
        self.command = command
        self.foreign = foreign  # written elsewhere: may print times, and may have no managed memory


class Output:
    """What a program prints, as far as it prints it every time."""

    def __init__(self, first, second):
        lines, again = first.splitlines(), second.splitlines()
        self.lines = lines
        self.steady = [a == b for a, b in zip(lines, again)] if len(lines) == len(again) else None

    def accepts(self, text):
        if self.steady is None:
            return True
        found = text.splitlines()
        return len(found) == len(self.lines) and all(
            a == b for a, b, steady in zip(self.lines, found, self.steady) if steady)

    def describe(self):
        if self.steady is None:
            return "same status; it never prints as many lines"
        changing = self.steady.count(False)
        return f"same but for {changing} lines that change with every run" if changing else "same"


class Case:
    """What runs under the shim, in so many times too little memory (None: everything fits).

    With `soft`, LMS_SOFT_LIMIT is what buffers may fill: the program is to give back what it caches.
    """

    def __init__(self, label, shim, factor, soft=False):
        self.label = label
        self.shim = shim
        self.factor = factor
        self.soft = soft


class Check:
    def __init__(self, options, session):
        self.options = options
        self.session = session
        self.simulated = session.simulated
        self.notes = []
        self.extra = None  # bytes of the GPU that are not for buffers, once a program has shown it

    # ------------------------------------------------------------ what there is

    def path(self, name, runtime):
        build = self.session.build
        if not self.simulated:
            return os.path.join(build, "gpu", runtime, name)
        own = os.path.join(build, "gpu", "sim", name)
        return own if os.path.exists(own) else os.path.join(build, "apps", name)

    def programs(self):
        """(program, cases) for everything that is built here; a note for what is not."""
        mib = ["6"] if self.simulated else ["64"]
        patterns = ["--buffers", "12", "--bytes", "400000" if self.simulated else "6000000",
                    "--steps", "40" if self.simulated else "200", "--seed", str(self.options.seed)]
        threads = ["--threads", "3"]
        names = [name for name in names_of_apps() if name != "patterns"] + list(OF_THIS_FOLDER) + list(LIBRARIES)
        names.sort(key=lambda name: (name not in THOROUGH, name not in LIBRARIES, name))
        wanted = []
        # What differs with the static runtime is how the driver is found.
        for runtime in ("shared",) if self.simulated else ("shared", "static"):
            for label, extra in (("patterns", []), ("patterns, threads", threads), ("patterns, async", ["--async"]),
                                 ("patterns, async, threads", ["--async"] + threads)):
                wanted.append(("patterns", label, runtime, patterns + extra, self.cases("patterns", runtime)))
            for name in names:
                wanted.append((name, name, runtime, mib, self.cases(name, runtime)))
        for name, label, runtime, arguments, cases in wanted:
            path = self.path(name, runtime)
            if self.options.only is not None and name not in self.options.only:
                continue
            if os.path.exists(path):
                yield Program(label, runtime, [path] + arguments), cases
            elif name in LIBRARIES and self.simulated:
                self.note(f"not run: {name}: {LIBRARIES[name]} refuses a driver that is not NVIDIA's")
            elif name in LIBRARIES:
                self.note(f"not run: {name}: no headers of {LIBRARIES[name]} beside the toolkit's")
            else:
                self.note(f"not run: {name}, {runtime} runtime: {os.path.relpath(path)} is not built")
        for line in self.options.program:
            command = shlex.split(line)
            cases = [Case("fits", {}, None)] + [Case(f"{f:g}x", {}, f) for f in FACTORS]
            yield Program(os.path.basename(command[0]), "its own", command, foreign=True), cases

    def cases(self, name, runtime):
        fits = [Case("fits", {}, None)]
        if name in FITTING:
            return fits
        if runtime == "static" or self.simulated or name not in THOROUGH + tuple(LIBRARIES):
            found = fits + [Case("2x", {}, 2.0)]
        else:
            found = fits + [Case(f"{f:g}x", {}, f) for f in FACTORS]
        if runtime == "static":
            return found
        if name in ("patterns", "streams") + TABLES + HIDDEN:
            levels = ("strict",) if name in HIDDEN else ("args", "strict")
            found += [Case(f"2x, safety {level}", {"LMS_SAFETY": level}, 2.0) for level in levels]
        if name == "patterns":
            found.append(Case("2x, policy lms", {"LMS_POLICY": "lms", "LMS_FRAC": "0.5"}, 2.0))
            found.append(Case("2x, everything goes out", {"LMS_FRAC": "0"}, 2.0))
        if name == "caching":
            found.append(Case("2x, soft limit", {}, 2.0, soft=True))
        return found

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    # ------------------------------------------------------------ running

    def check_program(self, program, cases):
        """One row for each case."""
        seconds = 120 if program.foreign else 60
        bare = self.session.run(program.command, seconds=seconds)
        if bare.status != 0:
            return [self.row(program, "without the shim", f"fails without the shim: {bare.ending()}: {bare.last_words()}", bare)]
        again = self.session.run(program.command, seconds=seconds) if program.foreign else bare
        output = Output(bare.out, again.out)
        fits = self.session.run(program.command, SHIM, seconds=seconds)
        need = fits.stats.get("peak_resident_bytes", 0)
        squeeze = harness.Squeeze(self.session, program.command, need, 1, SHIM, {}, seconds, self.extra)
        rows = []
        for case in cases:
            if self.session.time_left() < 1:
                rows.append(self.row(program, case.label, "not run: no time left", None))
                continue
            run, reached = fits, None
            if case.factor is not None:
                more = {**case.shim, **({"LMS_SOFT_LIMIT": str(int(need / case.factor))} if case.soft else {})}
                run, reached = squeeze.at(case.factor, more)
            rows.append(self.row(program, case.label, self.verdict(program, case, bare, output, run), run, reached, bare))
        if need > 0:
            self.extra = squeeze.extra
        return rows

    def verdict(self, program, case, bare, output, run):
        hidden = program.name in HIDDEN and not self.session.device["maps_host_memory"]
        if run.status != bare.status:
            if hidden and case.factor is not None:
                return "not supported: the device cannot map host memory"
            return f"{run.ending()}: {run.last_words()}"
        if not (output.accepts(run.out) if program.foreign else run.out == bare.out):
            return "other output"
        if not run.stats and program.name not in FITTING:
            return "the shim saw no allocation"
        if case.soft:
            return "same" if run.stats.get("refusals", 0) > 0 else "nothing was refused"
        if case.factor is not None and not run.moved:
            return "nothing moved"
        if case.factor is None and run.moved:
            return "moved though everything fits"
        return output.describe()

    @staticmethod
    def row(program, label, verdict, run, reached=None, bare=None):
        row = {"program": program.name, "runtime": program.runtime, "case": label, "verdict": verdict}
        if run is not None:
            row.update(seconds=round(run.seconds, 3), stats=run.stats)
        if reached:
            row["factor_reached"] = round(reached, 2)
        if bare is not None:
            row["seconds_without"] = round(bare.seconds, 3)
        return row

    def check_all(self):
        rows = []
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            waiting = [pool.submit(self.check_program, *each) for each in self.programs()]
            for done in concurrent.futures.as_completed(waiting):
                for row in done.result():
                    rows.append(row)
                    print(f"{row['program']}, {row['runtime']}, {row['case']}: {row['verdict']}", file=sys.stderr)
        return sorted(rows, key=lambda row: (row["program"], row["runtime"]))

    # ------------------------------------------------------------ what the shim costs when everything fits

    def overhead(self):
        """Notes the median figures of runs in turn, without and with the shim."""
        if self.simulated:
            return self.note("not run: overhead: times on the simulated GPU say nothing of a real one")
        for title, unit, arguments in (("a launch", "ns", ["launches", "20000", "0"]),
                                       ("16 layers forward and back", "ms", ["layers", "16", "64", "7"])):
            command = [self.path(arguments[0], "static")] + arguments[1:]
            if self.options.only is not None and arguments[0] not in self.options.only:
                continue
            if not os.path.exists(command[0]):
                self.note(f"not run: overhead of {title}: {os.path.relpath(command[0])} is not built")
                continue
            figures = {False: [], True: []}
            for _ in range(5):
                for shimmed in (False, True):
                    run = self.session.run(command, {} if shimmed else None)
                    if run.status == 0:
                        figures[shimmed].append(float(run.out.split()[0]))
            if figures[False] and figures[True]:
                without, with_shim = (statistics.median(figures[s]) for s in (False, True))
                self.note(f"overhead of {title} when everything fits: {without:g} {unit} without, {with_shim:g} {unit} "
                          f"with the shim, ratio {with_shim / without:.4f}")
        return None


def as_table(rows):
    header = ("program", "runtime", "case", "verdict", "need / budget", "evictions", "MiB in", "MiB out", "s", "s without")
    lines = []
    for row in rows:
        stats = row.get("stats", {})
        lines.append((row["program"], row["runtime"], row["case"], row["verdict"], row.get("factor_reached", "-"),
                      stats.get("evictions", "-"), stats.get("bytes_in", 0) >> 20, stats.get("bytes_out", 0) >> 20,
                      row.get("seconds", "-"), row.get("seconds_without", "-")))
    return header, lines


def acceptable(row):
    return row["verdict"].startswith(("same", "not supported"))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--build", default=os.path.join(harness.ROOT, "build"), help="folder of the build")
    parser.add_argument("--sim", action="store_true", help="on the simulated GPU, as far as it goes")
    parser.add_argument("--out", help="folder for the results; docs/gpu, or with --sim build/gpu/results")
    parser.add_argument("--only", action="append", metavar="PROGRAM", help="only this one; may be given several times")
    parser.add_argument("--program", action="append", default=[], metavar="COMMAND",
                        help="this program, written elsewhere, with its arguments, and of ours only what --only names; may be given several times")
    parser.add_argument("--libraries", action="append", default=[], metavar="DIR",
                        help="folder with NVIDIA's libraries; may be given several times")
    parser.add_argument("--jobs", type=int, default=0, help="programs at once (default: 1, for others' memory shrinks the budget; with --sim 2)")
    parser.add_argument("--seed", type=int, default=1, help="of the random patterns")
    parser.add_argument("--seconds", type=int, default=330, help="no run starts later than this")
    options = parser.parse_args()
    if options.program and options.only is None:
        options.only = []
    options.jobs = options.jobs or (2 if options.sim else 1)
    return options


def main():
    options = parse()
    if options.sim:
        os.environ.setdefault("SIMCUDA_MEMORY", "128M")
        os.environ.setdefault("SIMCUDA_GRANULARITY", "64K")
    try:
        session = harness.Session("check", options)
    except harness.Unusable as why:
        return harness.fail("gpu-check", why)
    for folder in options.libraries if not options.sim else []:
        session.search_first(folder)
    check = Check(options, session)
    rows = check.check_all()
    check.overhead()
    good = harness.write_results(session, "Programs with and without the shim", "checks", rows, "program", acceptable,
                                 as_table, check.notes)
    session.close()
    if not rows:
        return harness.fail("gpu-check", "nothing was checked")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
