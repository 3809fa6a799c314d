#!/bin/sh
# build/lmsshim-VERSION-py3-none-PLATFORM.whl: what `make install` installs, inside the Python package lms. The platform is
# the oldest glibc that all of it runs with.
set -eu
build=${BUILD:-build}
tree=$build/wheel

rm -rf "$tree" "$build"/lmsshim-*.whl
mkdir -p "$tree"
cp -RL tools/package/python/lms "$tree/lms"
make --no-print-directory install DESTDIR="$PWD/$tree/installed" PREFIX=/ BUILD="$build" CUDA_HOME="$CUDA_HOME" >/dev/null
mkdir "$tree/lms/tree"
mv "$tree/installed/bin" "$tree/installed/lib" "$tree/installed/include" "$tree/lms/tree/"
rm -rf "$tree/installed" "$tree/lms/tree/lib/pkgconfig"
exec python3 -B tools/package/wheel.py "$tree" "$VERSION" "$build"
