#!/usr/bin/env python3
"""What a step of a program that repeats itself takes in too little memory, against the least that it could, by the
simulated GPU's own clock (tests/bench.sh).

The bound of a step is a linear program's (tools/experiments/linear.py), for the same launches over the same buffers.
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/experiments"))

from linear import linear_bound_ms  # noqa: E402
from machines import CONTEXT, GB, LAUNCH_NS, Machine  # noqa: E402
from steps import Change, Kernel  # noqa: E402

BUILD = os.environ.get("BUILD", "build")
SHIM = os.path.abspath(os.path.join(BUILD, "liblmsshim.so"))
LAYER_MIB = 4
LINK = 1e9  # bytes a second each way; a layer then takes 4.2 ms
OWN = 256 << 10  # bytes of the simulated GPU's memory that a context takes
STEPS = 24
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
                "SIMCUDA_CONTEXT_BYTES": str(OWN), **({"LD_PRELOAD": SHIM} if shimmed else {}), **environment}
    command = [os.path.join(BUILD, "bench", "shapes"), program, str(layer), str(launches), str(steps), str(seed)]
    run = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    return float(run.stdout)


def memory_of(program, over):
    mib = shape(program, 1, 0, {"SIMCUDA_MEMORY": "1G"}, shimmed=False)
    return f"{int(mib * 1024 / over)}K"


class Recorded:
    """A step of tests/bench/shapes.cu, as tools/experiments/linear.py takes it."""

    precision = "f32"

    def __init__(self, launches):
        self.launches = launches
        self.events = []
        self.made = 0

    def buffers(self, count, quarters, what="P"):
        """`quarters` of a layer each; P: there from the start, A: allocated now."""
        ids = range(self.made, self.made + count)
        self.made += count
        self.events += [Change(what, each, quarters * (LAYER_MIB << 20) // 4) for each in ids]
        return list(ids)

    def buffer(self, quarters):
        return self.buffers(1, quarters, "A")[0]

    def free(self, *ids):
        self.events += [Change("F", each, 0) for each in ids]

    def kernel(self, lengths, writes, reads):
        for _ in range(max(1, int(lengths * self.launches))):
            self.events.append(Kernel("use", 0, reads, writes, 0))

    def kernels(self):
        return [event for event in self.events if isinstance(event, Kernel)]

    def changes(self, kinds="PAF"):
        return [event for event in self.events if isinstance(event, Change) and event.what in kinds]


def inference(step):
    for weights in step.buffers(16, 4):
        step.kernel(1, [], [weights])


def training(step):
    layers = 8
    weights, first, second, grads = (step.buffers(layers, 4) for _ in range(4))
    outputs, hidden, errors = (step.buffers(count, 1) for count in (layers + 1, layers, 2))
    for i in range(layers):
        step.kernel(1, [hidden[i]], [outputs[i], weights[i]])
        step.kernel(1, [outputs[i + 1]], [hidden[i], weights[i]])
    for i in reversed(range(layers)):
        error, below = errors[i % 2], errors[1 - i % 2]
        step.kernel(2, [below], [error, hidden[i], weights[i]])
        step.kernel(2, [grads[i]], [error, hidden[i], outputs[i]])
    for i in range(layers):
        step.kernel(0, [weights[i], first[i], second[i]], [grads[i]])


def activations(step):
    layers = 12
    weights, first, second = (step.buffers(layers, 1) for _ in range(3))
    outputs, hidden = [step.buffer(4)], []
    step.kernel(0, outputs[:1], [])
    for i in range(layers):
        hidden.append(step.buffer(4))
        step.kernel(0.5, [hidden[i]], [outputs[i], weights[i]])
        outputs.append(step.buffer(4))
        step.kernel(0.5, [outputs[i + 1]], [hidden[i], weights[i]])
    error, grads = step.buffer(4), {}
    for i in reversed(range(layers)):
        below, grads[i] = step.buffer(4), step.buffer(1)
        step.kernel(1, [below], [error, hidden[i], weights[i]])
        step.kernel(1, [grads[i]], [error, hidden[i], outputs[i]])
        step.free(error, outputs[i + 1], hidden[i])
        error = below
    step.free(error, outputs[0])
    for i in range(layers):
        step.kernel(0, [weights[i], first[i], second[i]], [grads[i]])
    step.free(*grads.values())


SHAPES = {"inference": inference, "training": training, "activations": activations}


def bound(program, launches, us, memory):
    """Milliseconds that a step takes at least where the GPU has so many bytes."""
    step = Recorded(launches)
    SHAPES[program](step)
    machine = Machine("", "", memory - OWN + CONTEXT, {"f32": 1}, 1, LINK / GB, LINK / GB)
    return linear_bound_ms(step, machine, factor=us * 1000 / LAUNCH_NS)


def against_bound(row):
    what, program, launches, us, more = row
    base = {"SIMCUDA_KERNEL_US": str(us), **more}
    for over in (1.5, 2, 3):
        environment = {**base, "SIMCUDA_MEMORY": memory_of(program, over)}
        now = shape(program, launches, STEPS, environment)
        lru = shape(program, launches, STEPS, {**environment, "LMS_POLICY": "lru"})
        least = bound(program, launches, us, int(memory_of(program, over)[:-1]) << 10)
        print(f"  {what + f', {over}x':<58} {least:12.2f} {now:12.2f} {now / least:8.3f} {lru / least:8.3f}", flush=True)


def together():
    """One allocation that holds all tensors, and one graph of all kernels, against one each."""
    memory = f"{200 * 1024 // 3}K"
    for us in (100, 500, TRAINED):
        environment = {"SIMCUDA_KERNEL_US": str(us), "SIMCUDA_MEMORY": memory}
        apart = shape("tensors", 1, 8, environment, layer=1)
        for what, program in (("in one allocation", "pooled-tensors"), ("in one graph", "graph-tensors")):
            time = shape(program, 1, 8, environment, layer=1)
            print(f"  {f'200 tensors, {us} us a kernel, 3x: apart, {what}':<58} {apart:12.2f} {time:12.2f} {time / apart:8.3f}", flush=True)


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
    for row in ROWS:
        against_bound(row)
    together()
    without_pattern()


if __name__ == "__main__":
    main()
