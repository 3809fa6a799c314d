#!/bin/sh
# Packages are made, installed into a root of their own, used there as somebody would, and taken away again without a trace.
cd "$(dirname "$0")/../.." || exit 1
exec env python3 -B tests/package/packages.py
