"""Makes any GPU look larger than it is: `python -m lms run train.py`."""

import os

_tree = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree")
#: The library to preload, and the header of policies.
SHIM = os.path.join(_tree, "lib", "lmsshim", "liblmsshim.so")
INCLUDE = os.path.join(_tree, "include")
PROGRAM = os.path.join(_tree, "bin", "lms")
