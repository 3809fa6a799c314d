#!/usr/bin/env python3
"""Stands for a program under the shim: no GPU, no shim, the counters and results that such a run would leave.

Under LD_PRELOAD it writes LMS_STATS as the shim would for a program whose buffers need 96 MiB on a GPU where 20 MiB
are taken before. Called as torch_ddp_gloo.py it is two processes. STUB_FAULT makes it wrong in one way.
"""

import json
import os
import sys
import time

MIB = 1 << 20
NEED = 96 * MIB
TAKEN = 20 * MIB
FAULT = os.environ.get("STUB_FAULT", "")
LOSSES = [2.0, 1.5, 1.25]


def budget():
    limit = os.environ.get("LMS_LIMIT")
    return max(int(limit) - TAKEN, MIB) if limit else NEED


def write_stats(process, squeezed):
    moves = 0 if FAULT == "nothing moves" else 50 if squeezed else 0
    if FAULT == "always moves":
        moves = 5
    path = os.environ["LMS_STATS"].replace("%p", f"{os.getpid()}{process}")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"allocations": 0 if FAULT == "no shim" else 10, "fills": moves, "evictions": moves,
                   "bytes_in": moves * MIB, "bytes_out": moves * MIB, "peak_resident_bytes": min(NEED, budget())}, file)


def next_count():
    """How many runs were before this one."""
    path = os.environ["STUB_COUNTER"]
    with open(path, "a+", encoding="utf-8") as file:
        file.seek(0)
        count = len(file.read())
        file.write(".")
    return count


def main():
    name = os.path.basename(sys.argv[0])
    if "--probe" in sys.argv:
        found = {"available": FAULT != "missing", "version": "0", "why": "stub: not installed"}
        print("RESULT " + json.dumps(found))
        return 0
    shimmed = "LD_PRELOAD" in os.environ
    squeezed = shimmed and budget() < NEED
    if shimmed:
        for process in range(2 if name == "torch_ddp_gloo.py" else 1):
            write_stats(process, squeezed)
    if FAULT == "crash" and squeezed:
        print("stub: out of memory", file=sys.stderr)
        return 3
    if FAULT == "hang" and squeezed and budget() < 0.4 * NEED:
        time.sleep(60)
    if not name.endswith(".py"):  # a program of gpu-check
        if FAULT == "clock":
            print(f"took {time.monotonic_ns()} ns")
        print("other" if FAULT == "other results" and squeezed else "ok")
        return 0
    noise = 1.0
    if FAULT.startswith("noisy"):
        noise += 1e-6 * (next_count() // 2 % 2)
    if FAULT in ("other results", "noisy, other results") and squeezed:
        noise += 0.01
    losses = [loss * noise for loss in LOSSES]
    print("RESULT " + json.dumps({
        "framework": "stub", "version": "0", "device": "none", "losses": [loss.hex() for loss in losses],
        "digest": str(noise), "peak_bytes": NEED, "step_seconds": 0.02 if squeezed else 0.01, "train_seconds": 0.05,
        "steps": 3}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
