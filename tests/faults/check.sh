#!/bin/sh
# The failures that were not survived once, and a fixed part of all there can be in four programs, once and lasting.
cd "$(dirname "$0")/../.." || exit 1
python3 -B tests/faults/sweep.py check --part 7/80 || exit 1
python3 -B tests/faults/sweep.py run --lasting 40 --part 7/80
