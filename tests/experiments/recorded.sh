#!/bin/sh
# The recorded steps take the memory that IBM published.
exec python3 -B "$(dirname "$0")/recorded.py"
