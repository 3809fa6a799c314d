#!/bin/sh
# Data-parallel training under Open MPI, which `make test` does not install.
if [ ! -x "${BUILD:-build}/experiments/ddl" ]; then
    echo "no Open MPI here; make setup MPI=1 installs it, then make builds the test's program"
    exit 77
fi
exec python3 -B "$(dirname "$0")/ddl.py"
