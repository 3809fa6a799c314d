#!/bin/sh
# Every row of differences.md is held by a test that is there.
exec python3 -B "$(dirname "$0")/differences.py"
