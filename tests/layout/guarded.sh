#!/bin/sh
# Every field that a lock guards says so.
exec python3 -B "$(dirname "$0")/guarded.py"
