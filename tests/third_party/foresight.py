#!/usr/bin/env python3
"""A step of training on half of the memory that its buffers need, against a bound, of programs that nobody here wrote.
foresight.py [NAME ...]

The bound of a step is a linear program's (tools/experiments/linear.py), for the launches of a traced run over the chunks that they
name. recorded_step.py says what it takes where the trace leaves something open. A step that is longer in memory has that time as
its bound. The time is the mean of the last 12 of 24 steps, from the end of a kernel to the end of a kernel.

Each kernel takes the same time, so that all of a step take about half as long as what the best order moves in it. What the programs
need is fetched as for `make third-party-check`. Needs SciPy (Debian: python3-scipy).
"""

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools", "experiments"))

import traces  # noqa: E402
from linear import least_ms  # noqa: E402
from recorded_step import recorded_step, room_of  # noqa: E402

BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
RECIPES = os.path.join(ROOT, "tests", "third_party")
STEPS, MEASURED = 24, 12  # the first ones are those that show what the program repeats
LINK = 1.0  # megabytes a millisecond each way

# recipe, its variant, us a kernel, how the names of kernels begin that read what they write (AdamW, in place)
ROWS = (("torch_gpt", "async", 180, "triton_for_fused"), ("jax", "cuda_async_no_graphs", 180, None), ("iree", "", 1000, None))


def run(recipe, variant, environment):
    """Its report by the simulated GPU, the kernels of a step, and the milliseconds that a settled one takes."""
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    with tempfile.NamedTemporaryFile(suffix=".json") as report, tempfile.TemporaryDirectory(prefix="foresight-") as scratch:
        settings = {"SIMCUDA_CLOCK": "simulated", "SIMCUDA_H2D_GBPS": "1", "SIMCUDA_D2H_GBPS": "1",
                    "SIMCUDA_GRANULARITY": "64K", "SIMCUDA_LOCAL_THREADS": "64", "LMS_THRESHOLD": "16K", "LMS_LOG": "error",
                    "SIMCUDA_REPORT": report.name, "SIMCUDA_WORK": os.path.join(scratch, "work"), "TRAIN_STEPS": str(STEPS),
                    "LD_LIBRARY_PATH": f"{BUILD}/sim:{cuda}/lib64", "CUDA_HOME": cuda, "python": sys.executable, "build": BUILD,
                    "recipes": RECIPES, "variant": variant, "label": "foresight", **environment}
        folder = os.path.join(BUILD, "programs", recipe)
        os.makedirs(folder, exist_ok=True)
        script = '. "$recipes/$1.recipe"; for setting in $settings; do export "$setting"; done; program'
        if not os.path.exists(os.path.join(folder, "fetched")):
            script = '. "$recipes/$1.recipe"; fetch && : >fetched; ' + script
        subprocess.run(["sh", "-c", script, "sh", recipe], cwd=folder, check=True,
                       env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
        with open(report.name, encoding="utf-8") as file:
            told = json.load(file)
        ends = []
        for name in os.listdir(scratch):
            with open(os.path.join(scratch, name), encoding="utf-8") as file:
                ends += [int(line.split()[3]) for line in file if line.startswith("kernel ")]
    kernels, rest = divmod(len(ends), STEPS)
    if rest:
        raise ValueError(f"{recipe}: {len(ends)} kernels are no {STEPS} steps")
    ends.sort()
    return told, kernels, (ends[-1] - ends[-1 - MEASURED * kernels]) / 1e6 / MEASURED


def peaks(recipe, variant, environment):
    """Of the GPU's memory and of the buffers that would move, in bytes, where all fits."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        report = run(recipe, variant, {**environment, "LMS_STATS": stats.name})[0]
        with open(stats.name, encoding="utf-8") as file:
            return report["devices"][0]["peak"], json.load(file)["peak_resident_bytes"]


def bound_ms(trace, kernels, us, updates, memory):
    """Of the step in the trace, where moving buffers had so much memory at least."""
    events = traces.events(trace)
    room = room_of(events, memory)
    lives, repeats = recorded_step(events, kernels, room, updates)
    if not repeats:
        print("  (its steps differ: the bound is that of one)")
    return least_ms([us / 1000] * kernels, lives, room / 1e6, LINK, LINK)


def main():
    names = sys.argv[1:]
    print(f"  {'a step of training, half of its buffers fit, ms':<44} {'in memory':>10} {'bound':>8} {'time':>8} {'/ bound':>8} {'lru':>8}")
    for recipe, variant, us, updates in ROWS:
        if names and recipe not in names:
            continue
        whole = {"SIMCUDA_KERNEL_US": str(us), "SIMCUDA_MEMORY": "1G"}
        shimmed = {"LD_PRELOAD": os.path.join(BUILD, "liblmsshim.so")}
        report, kernels, in_memory = run(recipe, variant, whole)
        peak, buffers = peaks(recipe, variant, {**whole, **shimmed})
        # What never moves is there besides: JAX's code is as much as its buffers, which are small here. The driver's own pool
        # may hold more than its buffers, and so may the shim where a buffer waits for its free.
        peak = min(peak, report["devices"][0]["peak"])
        half = {**whole, **shimmed, "SIMCUDA_MEMORY": str(peak - buffers // 2)}
        with tempfile.TemporaryDirectory(prefix="foresight-") as scratch:
            trace = os.path.join(scratch, "trace")
            run(recipe, variant, {**half, "LMS_TRACE": trace})
            bound = max(in_memory, bound_ms(trace, kernels, us, updates, buffers // 2))
        times = [run(recipe, variant, {**half, "LMS_POLICY": policy})[2] for policy in ("next-use", "lru")]
        print(f"  {f'{recipe} {variant}, {us} us a kernel':<44} {in_memory:10.2f} {bound:8.2f} {times[0]:8.2f} "
              f"{times[0] / bound:8.3f} {times[1] / bound:8.3f}", flush=True)


if __name__ == "__main__":
    main()
