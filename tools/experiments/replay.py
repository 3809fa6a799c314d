"""Runs a recorded step under the shim on the simulated GPU, in its simulated time, with bytes and links of 1/64."""

import json
import os
import pathlib
import subprocess
import tempfile

from machines import CONTEXT, kernel_ns
from pools import placements

SCALE = 64
MIB = 1 << 20
BUILD = pathlib.Path(os.environ.get("BUILD", "build")).absolute()
SHIM = {"LD_PRELOAD": f"{BUILD}/liblmsshim.so", "LMS_THRESHOLD": f"{2 * MIB // SCALE // 1024}"}
PINNING = 2.76  # 1e9 bytes a second that the host page-locks
OUT_OF_MEMORY = 3  # what replay then ends with


def scaled(number):
    return max(64, number // SCALE // 64 * 64)


def gradients(step):
    """What updates read and do not write."""
    return [each for kernel in step.kernels() if kernel.name == "update" for each in kernel.reads if each not in kernel.writes]


def program(step, machine, factor, allocator, summed=False):
    """The lines of replay.cuh's file; `summed`: with the place where gradients are complete."""

    def kernel(event):
        ids = (",".join(map(str, each)) or "-" for each in (event.reads, event.writes))
        return f"K {kernel_ns(event, step, machine, factor):.0f} {' '.join(ids)}"

    if allocator in ("async", "malloc"):
        lines = [f"{each.what} {each.id} {scaled(each.bytes)}" if hasattr(each, "what") else kernel(each)
                 for each in step.events]
        if summed:
            at = next(k for k, each in enumerate(step.events) if getattr(each, "name", "") == "update")
            lines.insert(at, f"G {','.join(map(str, gradients(step)))}")
        return lines
    pool, placed = placements(step, allocator)
    first = 1 + max(each.id for each in step.changes())  # of the segments
    lines = []
    for each, where in zip(step.events, placed, strict=True):
        if not hasattr(each, "what"):
            lines.append(kernel(each))
        elif each.what != "F":
            segment, offset, _ = where
            lines.append(f"T {each.id} {first + segment} {offset // SCALE // 64 * 64} {scaled(each.bytes)}")
    return [f"P {first + k} {scaled(size) + 64}" for k, size in enumerate(pool.segments)] + lines


def simulated(machine, memory=None):
    """The settings of the simulated GPU."""
    return {
        "SIMCUDA_CLOCK": "simulated", "SIMCUDA_GPU": machine.gpu,
        "SIMCUDA_MEMORY": str((memory or machine.memory) // SCALE), "SIMCUDA_CONTEXT_BYTES": str(CONTEXT // SCALE),
        "SIMCUDA_GRANULARITY": str(2 * MIB // SCALE),
        "SIMCUDA_H2D_GBPS": f"{machine.into / SCALE:.6f}", "SIMCUDA_D2H_GBPS": f"{machine.out / SCALE:.6f}",
        "SIMCUDA_PIN_GBPS": f"{PINNING / SCALE:.6f}", "LD_LIBRARY_PATH": f"{BUILD}/sim",
    }


def replay(step, machine, factor=1.0, allocator="async", touch=False, shim=True, memory=None, steps=6, environment=None):
    """Of the last two steps the mean: ms, bytes each way; and the peaks, all at full size. None: out of memory."""
    with tempfile.TemporaryDirectory() as folder:
        file, stats, report = (os.path.join(folder, name) for name in ("program", "stats", "report"))
        pathlib.Path(file).write_text("\n".join(program(step, machine, factor, allocator)) + "\n")
        settings = simulated(machine, memory) | {"SIMCUDA_REPORT": report}
        if shim:
            settings |= SHIM | {"LMS_STATS": stats}
        command = [BUILD / "experiments/replay", file, str(steps), "malloc" if allocator == "malloc" else "async"]
        command += ["touch"] if touch else []
        settings = {**os.environ, **settings, **(environment or {})}
        run = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
        if run.returncode == OUT_OF_MEMORY or "cudaErrorMemoryAllocation" in run.stderr:
            return None
        if run.returncode:
            raise RuntimeError(f"{step.name}: {run.stderr}")
        *lines, digest = run.stdout.splitlines()
        counters = json.loads(pathlib.Path(stats).read_text()) if shim else {}
    told = [line.split(" ", 1) for line in lines]
    reports = [json.loads(text) for _, text in told]

    def moved(way):
        return SCALE * (reports[-1]["bytes"][way] - reports[-3]["bytes"][way]) // 2

    return {
        "ms": sum(float(ms) for ms, _ in told[-2:]) / 2, "in": moved("host_to_device"), "out": moved("device_to_host"),
        "digest": digest.split()[1], "peak_gpu": SCALE * reports[-1]["devices"][0]["peak"],
        "peak_host": SCALE * counters.get("peak_host_bytes", 0), "in_place": counters.get("in_place_launches", 0),
    }
