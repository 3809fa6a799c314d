#!/bin/sh
# The programs that failed once (seeds/), and some fresh from fixed seeds, each in one setting in turn.
set -e
cd "$(dirname "$0")/../.."
python3 -B tests/random/run.py check
python3 -B tests/random/run.py run --seeds 1-960 --each 1 --block 20
