"""What stands beside the runs of make experiments: where allocators that divide memory place tensors, Unified Memory's
cost, and the bound."""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/experiments"))

from bound import bound_ms
from machines import GB, MACHINES, step_ms
from pools import POOLS
from steps import Step
from uvm import BLOCK, FAULT_MS, uvm_ms

PCIE3 = MACHINES["v100-pcie3"]


def apart(pool, step):
    """No two tensors that are there at the same time share a byte, and none ends beyond its segment."""
    for _ in range(2):
        for change in step.changes():
            if change.what == "F":
                pool.release(change.id)
            elif change.id not in pool.taken:
                pool.allocate(change.id, change.bytes)
                segment, offset, length = pool.taken[change.id]
                others = [piece for key, piece in pool.taken.items() if key != change.id and piece[0] == segment]
                if length < change.bytes or offset + length > pool.segments[segment] or \
                        any(offset < other[1] + other[2] and other[1] < offset + length for other in others):
                    return False
    return True


class Written:
    """A step of one kernel, which reads two tensors that stay, of which one fits."""

    def __init__(self, size):
        step = Step("vdsr", 1)
        kernel, change = step.kernels()[0], step.changes()[0]
        self.precision = step.precision
        self.events = [change._replace(what="P", id=k, bytes=size) for k in range(2)]
        self.events += [kernel._replace(reads=[k], writes=[], bytes=size, flops=0) for k in range(2)]

    kernels, changes = Step.kernels, Step.changes


def main():
    unet, vdsr, region = Step("unet3d", 12**3), Step("vdsr", 128), POOLS["region"]()
    two = Written(1000 * BLOCK)
    half = dataclasses.replace(PCIE3, memory=1000 * BLOCK + (448 << 20))
    # Each comes in whole, and for it the other goes out.
    moved = 2 * 1000 * (FAULT_MS + BLOCK / 1e6 * (1 / half.into + 1 / half.out))
    roomy = dataclasses.replace(PCIE3, memory=100 * GB)
    expected = {
        "a caching allocator's tensors are apart": apart(POOLS["caching"](), unet),
        "a region's tensors are apart": apart(region, unet),
        "a region is one allocation, a quarter larger than the tensors at most": len(region.segments) == 1
        and region.segments[0] < 1.25 * unet.peak(),
        "Unified Memory costs nothing where all fits": uvm_ms(vdsr, roomy) == step_ms(vdsr, roomy),
        "Unified Memory: each block a fault and two copies": abs(uvm_ms(two, half) / (step_ms(two, half) + moved) - 1) < 1e-9,
        "the bound is the kernels' time where all fits": abs(bound_ms(vdsr, roomy) / step_ms(vdsr, roomy) - 1) < 1e-9,
        # At the turn 42.9 GB are there and 2.1 are made: 28.4 go out before, and come in again after.
        "the bound of VDSR at 32": abs(bound_ms(vdsr, PCIE3) - 28.38 * 1e3 * (1 / PCIE3.into + 1 / PCIE3.out)) < 25,
    }
    wrong = [what for what, holds in expected.items() if not holds]
    print("\n".join(f"not so: {what}" for what in wrong))
    sys.exit(bool(wrong))


main()
