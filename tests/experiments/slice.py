"""Replays a few recorded steps under the shim, in simulated time: bytes each way are exact, the GPU's time within 1 % and not
below the bound.

A change that moves other bytes is to be looked at; `slice.py --print` then gives the new figures.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/experiments"))

from bound import bound_ms
from machines import MACHINES
from replay import replay
from steps import Step

# step, n, machine, allocator, policy: bytes in, bytes out, milliseconds a step
EXPECTED = {
    ("vdsr", 32, "v100-pcie3", "async", "next-use"): (0, 0, 963),
    ("vdsr", 128, "v100-pcie3", "async", "next-use"): (29729226752, 29863444480, 5341),
    ("vdsr", 128, "v100-pcie3", "async", "lru"): (28689039360, 28756148224, 5247),
    ("googlenet", 20, "p100-pcie3", "malloc", "next-use"): (4869586944, 4855955456, 448),
    ("unet3d", 1728, "v100-pcie3", "malloc", "next-use"): (8300527616, 8984199168, 1619),
    ("unet3d", 1728, "v100-pcie3", "async", "lru"): (8772386816, 9751756800, 1705),
}


def main():
    wrong = False
    for case, expected in EXPECTED.items():
        name, n, machine, allocator, policy = case
        step, machine = Step(name, n), MACHINES[machine]
        run = replay(step, machine, allocator=allocator, steps=4, environment={"LMS_POLICY": policy})
        found = (run["in"], run["out"], round(run["ms"]))
        in_memory = replay(step, machine, allocator=allocator, steps=4, shim=False, memory=4 * machine.memory)
        if "--print" in sys.argv:
            print(f"    {case}: {found},".replace("'", '"'))
        elif found[:2] != expected[:2] or abs(found[2] - expected[2]) > 0.01 * expected[2]:
            print(f"{case}: in, out and milliseconds are {found}, not {expected}")
            wrong = True
        if run["ms"] < bound_ms(step, machine):
            print(f"{case}: {run['ms']} ms are less than the bound, {bound_ms(step, machine)}")
            wrong = True
        if run["digest"] != in_memory["digest"]:
            print(f"{case}: other bytes than in memory")
            wrong = True
    sys.exit(wrong)


main()
