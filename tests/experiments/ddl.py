"""Data-parallel training under Open MPI: parameters are those of one process, each rank keeps to its share of memory, and
all end where one is out of it."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/experiments"))

from ddl import HOST, Ended, job
from machines import MACHINES
from replay import SCALE
from steps import Step

STEP, MACHINE, BATCHES = Step("unet3d", 12**3), MACHINES["v100-nvlink2"], 4


def parameters(ranks, **how):
    """Of all ranks the one value; wrong shares are told."""
    told = job(STEP, MACHINE, 1.0, ranks, BATCHES, steps=2, **how)
    for each in told:
        stats = each.get("stats")
        if stats and not (0 < stats["bytes_out"] and stats["peak_host_bytes"] <= HOST // ranks // SCALE
                          and stats["peak_resident_bytes"] <= MACHINE.memory // SCALE):
            print(f"{ranks} ranks, rank {each['rank']}: beyond its share, or nothing moved: {stats}")
            sys.exit(1)
    values = {each["parameters"] for each in told}
    if len(values) != 1:
        print(f"{ranks} ranks: parameters differ from rank to rank: {values}")
        sys.exit(1)
    return values.pop()


def out_of_memory():
    """How the job ends whose second rank may use 40 MB of host memory."""
    try:
        job(STEP, MACHINE, 1.0, 2, 2, environments=[{}, {"LMS_HOST_LIMIT": "40M"}])
    except Ended as end:
        return end.args
    return 0, ""


def main():
    alone = parameters(1, shim=False, memory=8 * MACHINE.memory)
    wrong = [f"{ranks} ranks: other parameters than one process has" for ranks in (2, 4) if parameters(ranks) != alone]
    status, said = out_of_memory()
    if status != 3 or "rank 1 is out of memory" not in said or "LMS_HOST_LIMIT" not in said:
        wrong.append(f"a rank out of host memory: the job ended with {status}: {said}")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


main()
