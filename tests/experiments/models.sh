#!/bin/sh
# Allocators, Unified Memory and the bound as make experiments models them.
exec python3 -B "$(dirname "$0")/models.py"
