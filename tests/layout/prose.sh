#!/bin/sh
# The check of prose (make lint runs it) finds what breaks each of its rules.
exec python3 -B "$(dirname "$0")/prose_test.py"
