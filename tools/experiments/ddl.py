#!/usr/bin/env python3
"""Data-parallel training on several modelled GPUs (ddl.cu): writes BUILD/experiments/ddl.json.

One process a GPU, each with an equal share of the host's memory. A step of RANKS processes takes as many batches. The
parameters must be those of one process that takes the same batches one after the other, on a GPU with room.
"""

import json
import os
import pathlib
import subprocess
import tempfile

from experiments import SERIES
from machines import GB, MACHINES
from replay import BUILD, SCALE, SHIM, gradients, program, simulated
from steps import Step

HOST = 64 * GB  # the host's memory, for all ranks
RANKS = (1, 2, 4)
SECONDS = 400  # far above what a run takes
MPI = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class Ended(Exception):
    """A job that ended otherwise: its status, and what it said."""


def job(step, machine, factor, ranks, batches, steps=3, shim=True, memory=None, environments=None):
    """Of each rank: the milliseconds of its last steps, the parameters, and with the shim its counters.

    `environments`: of each rank, beside what all have."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "program")
        file.write_text("\n".join(program(step, machine, factor, "async", summed=True)) + "\n")
        command = [*MPI]
        for rank in range(ranks):
            own = simulated(machine, memory) | {"SIMCUDA_DEVICES": str(ranks)}
            if shim:
                own |= SHIM | {"LMS_HOST_LIMIT": str(HOST // ranks // SCALE), "LMS_STATS": f"{folder}/stats{rank}"}
            own |= environments[rank] if environments else {}
            command += [":"] if rank else []
            command += ["-n", "1", *(word for name, value in own.items() for word in ("-x", f"{name}={value}"))]
            command += [BUILD / "experiments/ddl", file, str(steps), str(batches)]
        run = subprocess.run(command, env=os.environ | ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
        if run.returncode:
            raise Ended(run.returncode, run.stderr)
        told = sorted((json.loads(line) for line in run.stdout.splitlines()), key=lambda each: each["rank"])
        for each in told:
            if shim:
                each["stats"] = json.loads(pathlib.Path(folder, f"stats{each['rank']}").read_text())
        return told


def reduction_ms(step, machine, ranks):
    """Of a ring over host memory, in which each rank sends and receives 2 (n - 1) / n of the gradients, at the link's speed."""
    sizes = {change.id: change.bytes for change in step.changes("PA")}
    return 2 * (ranks - 1) / ranks * sum(sizes[each] for each in gradients(step)) / min(machine.into, machine.out) / 1e6


def measured(key, size):
    """A row for each number of ranks."""
    series = SERIES[key]
    step, machine = Step(series.step, series.n(size)), MACHINES[series.machine]
    rows = []
    for ranks in RANKS:
        told = job(step, machine, series.factor, ranks, ranks, steps=5)
        alone = job(step, machine, series.factor, 1, ranks, shim=False, memory=4 * machine.memory + 2 * step.peak())
        short = job(step, machine, series.factor, ranks, ranks)
        if {each["parameters"] for each in short} != {alone[0]["parameters"]}:
            raise RuntimeError(f"{series.title}, {ranks} ranks: other parameters than one process has")
        ms = max(sum(each["ms"][-2:]) / 2 for each in told) + reduction_ms(step, machine, ranks)
        rows.append({
            "series": key, "size": size, "ranks": ranks, "ms": ms, "efficiency": rows[0]["ms"] / ms if rows else 1.0,
            "host_limit": HOST // ranks, "host": SCALE * max(each["stats"]["peak_host_bytes"] for each in told),
            "gpu": SCALE * max(each["stats"]["peak_resident_bytes"] for each in told),
        })
        print(f"{series.title}, {size}, {ranks} ranks: {ms:.0f} ms a step, {100 * rows[-1]['efficiency']:.1f} %", flush=True)
    return rows


def main():
    rows = [row for key in ("unet3d-nvlink2", "unet3d-pcie3") for row in measured(key, 192)]
    (BUILD / "experiments/ddl.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
