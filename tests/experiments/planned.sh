#!/bin/sh
# Plans of recorded steps take the time that live runs take.
exec python3 -B "$(dirname "$0")/planned.py"
