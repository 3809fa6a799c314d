#!/bin/sh
# Links between documents hold, and so do the names of documents elsewhere.
exec python3 -B "$(dirname "$0")/docs.py"
