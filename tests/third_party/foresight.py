#!/usr/bin/env python3
"""What a step of training takes on half of the memory that its buffers need, against a bound, of programs that nobody
here wrote. foresight.py [NAME ...]

The bound of a step is its time in memory, or that of what the order that knows the future moves in or out in it, on a link
that does both at once, if that is longer. It comes from `lms replay` over the traces of a short and a longer run. Tensors of
these programs are not recorded, so the bound of tests/bench/foresight.py, which is nearer, cannot be told.

Each kernel takes the same time, so that all of a step take about half as long as what the best order moves in it.
What they need is fetched as for `make third-party-check`.
"""

import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
RECIPES = os.path.join(ROOT, "tests", "third_party")
STEPS = (8, 24)
LINK = 1e9  # bytes a second each way

# recipe, its variant, us a kernel
ROWS = (("torch_gpt", "async", 180), ("jax", "cuda_async_no_graphs", 180), ("iree", "", 1000))


def run(recipe, variant, steps, environment):
    """Its report by the simulated GPU, of so many steps."""
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        settings = {"SIMCUDA_CLOCK": "simulated", "SIMCUDA_H2D_GBPS": "1", "SIMCUDA_D2H_GBPS": "1",
                    "SIMCUDA_GRANULARITY": "64K", "SIMCUDA_LOCAL_THREADS": "64", "LMS_THRESHOLD": "16K", "LMS_LOG": "error",
                    "SIMCUDA_REPORT": report.name, "TRAIN_STEPS": str(steps), "LD_LIBRARY_PATH": f"{BUILD}/sim:{cuda}/lib64",
                    "CUDA_HOME": cuda, "python": sys.executable, "build": BUILD, "recipes": RECIPES, "variant": variant, "label": "foresight", **environment}
        folder = os.path.join(BUILD, "programs", recipe)
        os.makedirs(folder, exist_ok=True)
        script = '. "$recipes/$1.recipe"; for setting in $settings; do export "$setting"; done; program'
        if not os.path.exists(os.path.join(folder, "fetched")):
            script = '. "$recipes/$1.recipe"; fetch && : >fetched; ' + script
        subprocess.run(["sh", "-c", script, "sh", recipe], cwd=folder, check=True,
                       env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
        with open(report.name, encoding="utf-8") as file:
            return json.load(file)


def buffers_of(recipe, variant, environment):
    """The bytes of the buffers that would move, at once."""
    with tempfile.NamedTemporaryFile(suffix=".json") as stats:
        run(recipe, variant, STEPS[0], {**environment, "LMS_STATS": stats.name})
        with open(stats.name, encoding="utf-8") as file:
            return json.load(file)["peak_resident_bytes"]


def more_a_step(recipe, variant, environment, of):
    """Of what each step adds: the first ones are those that show what the program repeats."""
    short, long = (of(run(recipe, variant, steps, environment), steps) for steps in STEPS)
    return (long - short) / (STEPS[1] - STEPS[0])


def step_ms(recipe, variant, environment):
    return more_a_step(recipe, variant, environment, lambda report, steps: report["simulated_ns"] / 1e6)


def moved_at_best(trace):
    command = [os.path.join(BUILD, "lms"), "replay", trace, "--policy", "fewest-bytes", "--json"]
    replay = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["replays"][0]
    return replay["bytes_in"], replay["bytes_out"]


def main():
    names = sys.argv[1:]
    print(f"  {'a step of training, half of its buffers fit, ms':<40} {'in memory':>10} {'bound':>8} {'time':>8} {'/ bound':>8} {'lru':>8}")
    for recipe, variant, us in ROWS:
        if names and recipe not in names:
            continue
        whole = {"SIMCUDA_KERNEL_US": str(us), "SIMCUDA_MEMORY": "1G"}
        shimmed = {"LD_PRELOAD": os.path.join(BUILD, "liblmsshim.so")}
        peak = run(recipe, variant, STEPS[0], whole)["devices"][0]["peak"]
        in_memory = step_ms(recipe, variant, whole)
        # What never moves is there besides: JAX's code is as much as its buffers, which are small here.
        half = {**whole, **shimmed, "SIMCUDA_MEMORY": str(peak - buffers_of(recipe, variant, {**whole, **shimmed}) // 2)}
        times = [step_ms(recipe, variant, {**half, "LMS_POLICY": policy}) for policy in ("next-use", "lru")]
        moved = []
        with tempfile.TemporaryDirectory(prefix="foresight-") as scratch:
            for steps in STEPS:
                trace = os.path.join(scratch, f"trace-{steps}")
                run(recipe, variant, steps, {**half, "LMS_TRACE": trace})
                moved.append(moved_at_best(trace))
        best = max(long - short for short, long in zip(*moved)) / (STEPS[1] - STEPS[0]) / LINK * 1000
        bound = max(in_memory, best)
        print(f"  {f'{recipe} {variant}, {us} us a kernel':<40} {in_memory:10.2f} {bound:8.2f} {times[0]:8.2f} "
              f"{times[0] / bound:8.3f} {times[1] / bound:8.3f}", flush=True)


if __name__ == "__main__":
    main()
