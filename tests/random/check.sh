#!/bin/sh
# The programs that failed once (seeds/), and some of fixed seeds, each in one setting in turn, some with parts or yields; and
# several at once on one GPU.
cd "$(dirname "$0")/../.." || exit 1
python3 -B tests/random/run.py check
kept=$?
python3 -B tests/random/crowd.py --rounds 1-6 || kept=1
python3 -B tests/random/run.py run --seeds 1-960 --each 1 --block 20 || kept=1
python3 -B tests/random/run.py run --seeds 1153-1312 --each 1 --block 20 --parts || kept=1
python3 -B tests/random/run.py run --seeds 961-1152 --each 1 --block 4 --yields && exit $kept
