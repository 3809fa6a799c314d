"""What the framework programs share: their options and the line they end with.

    RESULT {"framework": ..., "version": ..., "device": ..., "losses": [hexadecimal floats], "digest": ...,
            "peak_bytes": ..., "step_seconds": ..., "train_seconds": ..., "steps": ...}

With --probe a program only says whether it can run here: {"available": true, "version": ...} or
{"available": false, "why": ...}.
"""

import argparse
import hashlib
import json
import statistics
import sys
import time


def parse(description, **more):
    """The common options; `more` are further ones with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--probe", action="store_true", help="only say whether this can run here")
    parser.add_argument("--mib", type=int, default=1024, help="device memory to work through, about")
    parser.add_argument("--steps", type=int, default=12)
    for name, default in more.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    return parser.parse_args()


def available(version):
    print("RESULT " + json.dumps({"available": True, "version": version}), flush=True)
    sys.exit(0)


def unavailable(why):
    print("RESULT " + json.dumps({"available": False, "why": str(why)}), flush=True)
    sys.exit(0)


def digest(arrays):
    """SHA-256 of the bytes of all arrays (anything with tobytes())."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(array.tobytes())
    return whole.hexdigest()


class Steps:
    """Times of the steps; the first few, which load and choose kernels, do not count."""

    WARM_UP = 3

    def __init__(self):
        self.times = []
        self.losses = []
        self.begin = time.perf_counter()
        self.last = self.begin

    def done(self, loss):
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now
        self.losses.append(float(loss))

    def report(self, framework, version, device, checksum, peak_bytes):
        counted = self.times[self.WARM_UP:] or self.times
        print("RESULT " + json.dumps({
            "framework": framework, "version": version, "device": device,
            "losses": [loss.hex() for loss in self.losses], "digest": checksum, "peak_bytes": int(peak_bytes),
            "step_seconds": statistics.median(counted), "train_seconds": time.perf_counter() - self.begin,
            "steps": len(self.times)}), flush=True)
