#!/bin/sh
# Every fault still has its place in the sources.
exec python3 -B "$(dirname "$0")/mutants.py" check
