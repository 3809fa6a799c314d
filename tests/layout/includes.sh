#!/bin/sh
# Includes point one way between rooms.
exec python3 -B "$(dirname "$0")/includes.py"
