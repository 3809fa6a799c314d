#!/usr/bin/env python3
"""What a step of a program that repeats itself takes in too little memory, against the least that it could, by the
simulated GPU's own clock (tests/bench.sh).

The bound of a step is its time in memory, or that of what the order that knows the future moves in or out in it, on a
link that does both at once, if that is longer. It comes from `lms replay` over the traces of a short and a longer run. (What that order moves
is each buffer's bytes; that what has just been submitted cannot go is in it, that the link idles until then is not.)
"""

import json
import os
import subprocess
import tempfile

BUILD = os.environ.get("BUILD", "build")
SHIM = os.path.abspath(os.path.join(BUILD, "liblmsshim.so"))
LAYER_MIB = 4
LINK = 1e9  # bytes a second each way; a layer then takes 4.2 ms
STEPS = (8, 16)
TRAINED, DECODED = 1049, 210  # us a launch: a quarter and a twentieth of a layer's move

# what, program, launches a kernel, us a launch, its environment
ROWS = (
    ("inference, kernels half as long as a move", "inference", 2, TRAINED, {}),
    ("  a twentieth (decoding)", "inference", 1, DECODED, {}),
    ("  the same, all copied out (as by native code)", "inference", 1, DECODED, {"LMS_RETAIN": "0"}),
    ("training, half", "training", 2, TRAINED, {}),
    ("activations in stream order, half", "activations", 4, TRAINED, {}),
    ("  a quarter", "activations", 2, TRAINED, {}),
)
SEEDS = 20


def shape(program, launches, steps, environment, seed=1, shimmed=True, layer=LAYER_MIB):
    """What tests/bench/shapes.cu prints."""
    settings = {"LMS_RESERVE": "0", "SIMCUDA_CLOCK": "simulated", "SIMCUDA_H2D_GBPS": "1", "SIMCUDA_D2H_GBPS": "1",
                **({"LD_PRELOAD": SHIM} if shimmed else {}), **environment}
    command = [os.path.join(BUILD, "bench", "shapes"), program, str(layer), str(launches), str(steps), str(seed)]
    run = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    return float(run.stdout)


def memory_of(program, over):
    mib = shape(program, 1, 0, {"SIMCUDA_MEMORY": "1G"}, shimmed=False)
    return f"{int(mib * 1024 / over)}K"


def moved_at_best(trace):
    command = [os.path.join(BUILD, "lms"), "replay", trace, "--policy", "fewest-bytes", "--json"]
    replay = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["replays"][0]
    return replay["bytes_in"], replay["bytes_out"]


def step_at_best(program, launches, environment, scratch):
    """Milliseconds that the copies of a step take, by the order that knows the future."""
    moved = []
    for steps in STEPS:
        trace = os.path.join(scratch, f"trace-{steps}")
        shape(program, launches, steps, {**environment, "LMS_TRACE": trace})
        moved.append(moved_at_best(trace))
    more = [long - short for short, long in zip(*moved)]
    return max(more) / (STEPS[1] - STEPS[0]) / LINK * 1000


def against_bound(row, scratch):
    what, program, launches, us, more = row
    base = {"SIMCUDA_KERNEL_US": str(us), **more}
    in_memory = shape(program, launches, 3, {**base, "SIMCUDA_MEMORY": "1G"}, shimmed=False)
    for over in (1.5, 2, 3):
        environment = {**base, "SIMCUDA_MEMORY": memory_of(program, over)}
        now = shape(program, launches, STEPS[1], environment)
        lru = shape(program, launches, STEPS[1], {**environment, "LMS_POLICY": "lru"})
        bound = max(in_memory, step_at_best(program, launches, environment, scratch))
        print(f"  {what + f', {over}x':<58} {bound:12.2f} {now:12.2f} {now / bound:8.3f} {lru / bound:8.3f}", flush=True)


def divided():
    """One allocation that holds all tensors, against one each."""
    memory = f"{200 * 1024 // 3}K"
    for us in (100, 500, TRAINED):
        environment = {"SIMCUDA_KERNEL_US": str(us), "SIMCUDA_MEMORY": memory}
        apart, pooled = (shape(program, 1, 8, environment, layer=1) for program in ("tensors", "pooled-tensors"))
        print(f"  {f'200 tensors, {us} us a kernel, 3x: apart, in one allocation':<58} {apart:12.2f} {pooled:12.2f} {pooled / apart:8.3f}",
              flush=True)


def without_pattern():
    environment = {"SIMCUDA_KERNEL_US": str(TRAINED), "SIMCUDA_MEMORY": memory_of("patternless", 2)}
    ratios = []
    for seed in range(1, SEEDS + 1):
        times = [shape("patternless", 2, 4, {**environment, "LMS_POLICY": policy}, seed) for policy in ("next-use", "lru")]
        ratios.append(times[0] / times[1])
    print(f"  {f'without a pattern, 2x, time / lru, {SEEDS} seeds: mean and most':<58} {'':12} {'':12} "
          f"{sum(ratios) / len(ratios):8.3f} {max(ratios):8.3f}")


def main():
    print(f"  {'a step in too little memory, ms':<58} {'bound':>12} {'time':>12} {'/ bound':>8} {'lru':>8}")
    with tempfile.TemporaryDirectory(prefix="foresight-") as scratch:
        for row in ROWS:
            against_bound(row, scratch)
    divided()
    without_pattern()


if __name__ == "__main__":
    main()
