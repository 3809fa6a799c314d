"""Makes any GPU look larger than it is: `python -m lms run train.py`. A program that knows of that may say more: lms.pin(tensor),
lms.region("epoch 3") and the rest of lms.api. Without the shim they do nothing."""

import os

from lms.api import (
    Buffer,
    Error,
    NoRoom,
    evict,
    limit,
    load_trace,
    pause,
    pin,
    prefetch,
    present,
    region,
    resume,
    snapshot,
    stats,
    unpin,
)

__all__ = [
    "INCLUDE", "PROGRAM", "SHIM", "Buffer", "Error", "NoRoom", "evict", "limit", "load_trace", "pause", "pin", "prefetch", "present",
    "region", "resume", "snapshot", "stats", "unpin",
]

_tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree")
#: The library to preload, and the headers for policies and programs.
SHIM = os.path.join(_tree, "lib", "lmsshim", "liblmsshim.so")
INCLUDE = os.path.join(_tree, "include")
PROGRAM = os.path.join(_tree, "bin", "lms")
