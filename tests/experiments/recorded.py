"""What IBM published of its three experiments, found in the recorded steps: what fits 16 GB, and what Caffe counts."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/experiments"))

from steps import FOLDER, Step

FREE = (16 << 30) - (512 << 20)  # beside a context


def caffe_count(step):
    """Caffe adds up the outputs of all layers: those in place again, and a blob for each of its readers if they are several."""
    size = {change.id: change.bytes for change in step.changes("P")}
    kernels = step.kernels()
    made = {kernel.writes[0] for kernel in kernels}
    reads = [each for kernel in kernels if kernel.name != "relu_" for each in kernel.reads if each in made]
    return sum(size[kernel.writes[0]] for kernel in kernels) + sum(size[each] for each in reads if reads.count(each) > 1)


def balanced(step):
    """Frees what it allocates and touches what is there; returns that."""
    there = set()
    for event in step.events:
        if hasattr(event, "what"):
            (there.remove if event.what == "F" else there.add)(event.id)
        elif not there.issuperset(event.reads + event.writes):
            return None
    return there


def main():
    expected = {
        "VDSR at 512x512: a batch of 8 fits": Step("vdsr", 8 * 4).peak() < FREE,
        "VDSR at 512x512: a batch of 16 does not": Step("vdsr", 16 * 4).peak() > FREE,
        "3D U-Net: 144^3 fits": Step("unet3d", 9**3).peak() < FREE,
        "3D U-Net: 192^3 does not": Step("unet3d", 12**3).peak() > FREE,
        "GoogLeNet: Caffe counts 1.59 GB an image": abs(caffe_count(Step("googlenet", 1)) / 1.59e9 - 1) < 0.01,
    }
    for path in sorted(FOLDER.glob("*.txt")):
        step = Step(path.stem, 64)
        expected[f"{path.stem}: what stays is what was there"] = balanced(step) == {each.id for each in step.changes("P")}
    wrong = [what for what, holds in expected.items() if not holds]
    print("\n".join(f"not so: {what}" for what in wrong))
    sys.exit(bool(wrong))


main()
