#!/usr/bin/env python3
"""Writes steps/NAME.txt for each network named, or for all: what one step allocates, frees and launches (recorder.py).

    python -m venv venv && venv/bin/pip install torch==2.15.0 && venv/bin/python tools/experiments/record.py [NAME ...]
"""

import dataclasses
import pathlib
import sys
from collections.abc import Callable

import nets_ibm
import nets_today
import torch
from recorder import Recorder, fold


@dataclasses.dataclass
class Net:
    about: str
    unit: str
    step: Callable  # (recorder, size)
    sizes: tuple  # at which it is recorded
    n: Callable = lambda size: size
    precision: str = "f32"
    blobs: bool = False  # keeps all tensors, as Caffe does


NETS = {
    "vdsr": Net("VDSR: a training step, SGD with momentum", "crops x (side / 256)^2", nets_ibm.vdsr,
                ((2, 256), (3, 256), (1, 1024)), lambda size: size[0] * (size[1] // 256) ** 2),
    "unet3d": Net("3D U-Net of Isensee 2017: a training step, batch 1, Adam", "(side / 16)^3", nets_ibm.unet3d, (144, 160, 192),
                  lambda side: (side // 16) ** 3),
    "googlenet": Net("GoogLeNet at 1200x1200: inference as Caffe does it, where all blobs stay", "images", nets_ibm.googlenet,
                     (10, 11, 15), blobs=True),
    "resnet50": Net("ResNet-50 at 224x224: a training step, SGD with momentum", "images", nets_today.resnet50, (16, 20, 32),
                    precision="bf16"),
    "gpt2xl": Net("GPT-2 XL, 1.56e9 weights: a training step, AdamW", "sequences of 1024", nets_today.gpt2xl,
                  (1, 2, 5), precision="bf16"),
    "diffusion": Net("the U-Net of Stable Diffusion 1.5, 0.86e9 weights: a training step, AdamW", "latents of 64x64",
                     nets_today.diffusion, (4, 5, 8), precision="bf16"),
    "decode": Net("a language model of 7e9 weights: a prompt of 1024, three more words, a cache that grows", "sequences",
                  nets_today.decode, (1, 2, 5), precision="bf16"),
}

STEPS = pathlib.Path(__file__).parent / "steps"


def events(net, size):
    recorder = Recorder()
    with torch.device("meta"), recorder:
        net.step(recorder, size)
    if net.blobs:  # whatever is allocated stays
        recorder.events = [("P", *event[1:]) if event[0] == "A" else event for event in recorder.events if event[0] != "F"]
        recorder.events.sort(key=lambda event: event[0] != "P")
    return recorder.events


def main():
    names = sys.argv[1:] or NETS
    for name in names:
        if name not in NETS:
            print(f"record.py: no network {name}; there are {', '.join(NETS)}", file=sys.stderr)
            sys.exit(2)
    for name in names:
        net = NETS[name]
        lines = fold([net.n(size) for size in net.sizes], [events(net, size) for size in net.sizes])
        head = [f"# {net.about}", f"# n: {net.unit}", f"# precision: {net.precision}"]
        (STEPS / f"{name}.txt").write_text("\n".join([*head, *lines, ""]))
        print(f"{name}: {len(lines)} events")


if __name__ == "__main__":
    main()
