#!/bin/sh
# A few steps of make experiments move the bytes and take the time that they took before.
exec python3 -B "$(dirname "$0")/slice.py"
