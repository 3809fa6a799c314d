#!/usr/bin/env python3
"""Replays the recorded steps on the modelled machines (make experiments): writes BUILD/experiments/results.json.

    experiments.py [SERIES ...]      of these series alone; the other results are kept
"""

import concurrent.futures
import dataclasses
import json
import os
import sys

from machines import GB, MACHINES, step_ms
from replay import BUILD, replay
from steps import Step


def cube(side):
    return (side // 16) ** 3


def crops(batch):  # of 512x512
    return 4 * batch


def calibrated(name, n, machine, ms):
    """The factor by which kernels take longer, so that the step takes what IBM published of it."""
    return ms / step_ms(Step(name, n), MACHINES[machine])


# 197 s an epoch at 144^3, of 228 images: four fifths of the 285 of BraTS 2017.
UNET3D = calibrated("unet3d", cube(144), "v100-nvlink2", 197e3 / 228)
# 263.5 ms at batch 10.
GOOGLENET = calibrated("googlenet", 10, "p100-nvlink1", 263.5)


@dataclasses.dataclass(frozen=True)
class Series:
    title: str
    step: str
    machine: str
    x: str  # what the sizes are
    sizes: tuple
    n: object = int  # of a size
    factor: float = 1.0
    allocator: str = "async"
    eager: bool = True  # IBM's way is modelled beside
    steps: int = 6  # after so many the same moves come again
    ibm: dict = dataclasses.field(default_factory=dict)  # what IBM published: slowdown by size


SIDES, BATCHES, IMAGES = (144, 160, 176, 192, 208, 224, 256), (4, 8, 12, 16, 24, 32), (10, 15, 20, 30, 40)
VDSR_IBM = {4: 9908.85 / 3581.36, 8: 9701.99 / 3529.63, 16: 9619.66 / 3529.63, 32: 9554.93 / 3529.63}
UNET3D_SECONDS = 197 * cube(192) / cube(144)  # of 192^3, could it be done without moving
SERIES = {
    "unet3d-pcie3": Series("3D U-Net, V100, PCIe 3", "unet3d", "v100-pcie3", "cube", SIDES, cube, UNET3D,
                           ibm={192: 1467 / UNET3D_SECONDS}),
    "unet3d-nvlink2": Series("3D U-Net, V100, NVLink 2", "unet3d", "v100-nvlink2", "cube", SIDES, cube, UNET3D,
                             ibm={192: 590 / UNET3D_SECONDS}),
    "vdsr-pcie3": Series("VDSR, V100, PCIe 3", "vdsr", "v100-pcie3", "batch", BATCHES, crops),
    "vdsr-nvlink2": Series("VDSR, V100, NVLink 2", "vdsr", "v100-nvlink2", "batch", BATCHES, crops, ibm=VDSR_IBM),
    "googlenet-pcie3": Series("GoogLeNet, P100, PCIe 3", "googlenet", "p100-pcie3", "batch", IMAGES, factor=GOOGLENET,
                              allocator="malloc", eager=False),
    "googlenet-nvlink1": Series("GoogLeNet, P100, NVLink 1", "googlenet", "p100-nvlink1", "batch", IMAGES, factor=GOOGLENET,
                                allocator="malloc", eager=False, ibm={10: 1.0}),
    "resnet50": Series("ResNet-50, RTX 4090", "resnet50", "rtx4090-pcie4", "batch", (256, 512, 640, 768, 1024),
                       eager=False, steps=16),
    "diffusion": Series("Stable Diffusion's U-Net, RTX 4090", "diffusion", "rtx4090-pcie4", "batch", (8, 12, 16, 24, 32),
                        eager=False, steps=16),
    "decode": Series("7e9 weights, decoding, RTX 4090", "decode", "rtx4090-pcie4", "batch", (8, 16, 20, 24, 32), eager=False),
    "gpt2xl-h100": Series("GPT-2 XL, H100", "gpt2xl", "h100-pcie5", "batch", (4, 12, 20, 24, 28, 32, 40), eager=False),
    "gpt2xl-gh200": Series("GPT-2 XL, Grace-Hopper", "gpt2xl", "gh200-c2c", "batch", (4, 12, 20, 24, 28, 32, 40), eager=False),
}
# The step that IBM could not do over PCIe without losing two thirds of the GPU, by other allocators.
ALLOCATORS = {"async": "`cudaMallocAsync` a tensor", "caching": "PyTorch's caching allocator",
              "malloc": "`cudaMalloc` a tensor", "region": "one region, best fit (TensorFlow, JAX)"}


# A launch that waits for a second of the machine's own time goes on with what is in host memory. Beside much other work that
# is no property of the program.
TRIES = 4


def point(key, size, allocator=None):
    series, allocator = SERIES[key], allocator or SERIES[key].allocator
    step, machine = Step(series.step, series.n(size)), MACHINES[series.machine]
    needs = step.peak()
    common = {"factor": series.factor, "allocator": allocator, "steps": series.steps}
    memory = replay(step, machine, shim=False, memory=4 * machine.memory + 2 * needs, **common)
    runs = {}
    for policy in ("next-use", "lru"):
        for _ in range(TRIES):
            runs[policy] = replay(step, machine, environment={"LMS_POLICY": policy}, **common)
            if runs[policy]["digest"] != memory["digest"]:
                raise RuntimeError(f"{series.title}, {size}: other bytes than in memory")
            if not runs[policy]["in_place"]:
                break
        if runs[policy]["in_place"]:  # some tensors were used in host memory, so what kernels touch of them counts
            runs[policy] = replay(step, machine, environment={"LMS_POLICY": policy}, touch=True, **common)
    bare = replay(step, machine, shim=False, **common | {"steps": 4})
    return {
        "series": key, "size": size, "allocator": allocator, "needs": needs, "memory": machine.memory, "ms": memory["ms"],
        "bare": bare and bare["ms"], "shim": runs["next-use"], "lru": runs["lru"],
    }


def main():
    keys = sys.argv[1:] or list(SERIES)
    for key in keys:
        if key not in SERIES:
            print(f"experiments.py: no series {key}; there are {', '.join(SERIES)}", file=sys.stderr)
            sys.exit(2)
    work = [(key, size, None) for key in keys for size in SERIES[key].sizes]
    work += [("unet3d-pcie3", 192, each) for each in ALLOCATORS if each != "async"] if "unet3d-pcie3" in keys else []
    file = BUILD / "experiments/results.json"
    kept = json.loads(file.read_text()) if sys.argv[1:] and file.exists() else []
    results = [each for each in kept if each["series"] not in keys]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(lambda each: point(*each), work):
            results.append(result)
            file.write_text(json.dumps(results, indent=1) + "\n")
            ms, shim, lru = result["ms"], result["shim"]["ms"], result["lru"]["ms"]
            title = SERIES[result["series"]].title
            print(f"{title}, {result['size']}, {result['allocator']}: {result['needs'] / GB:.1f} GB, "
                  f"{ms:.1f} ms in memory, shim {shim / ms:.3f}, lru {lru / ms:.3f}",
                  flush=True)


if __name__ == "__main__":
    main()
