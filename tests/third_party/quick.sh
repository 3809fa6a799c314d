#!/bin/sh
# The quickest of the programs that nobody here wrote, side by side. What they need is downloaded once, into the build
# folder; where no package index answers they cannot be run, which ends with 77 (tests/run.py says so).
cd "$(dirname "$0")/../.." || exit 1
programs="tvm iree drjit"
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3

fetched() {
    for program in $programs; do [ -e "${BUILD:-build}/programs/$program/fetched" ] || return 1; done
}

# index_answers: asked as the recipes ask, by the pip of a virtual environment, but once.
index_answers() {
    scratch=$(mktemp -d) || return 0
    trap 'rm -rf "$scratch"' EXIT
    "$python" -m venv "$scratch" || return 0
    "$scratch/bin/pip" index versions pip --retries 0 --timeout 20 >"$scratch/log" 2>&1
}

if ! fetched && ! index_answers; then
    echo "no package index answers, to install $programs from"
    exit 77
fi
# shellcheck disable=SC2086 # a list of words
printf '%s\n' $programs | xargs -P 3 -n 1 sh tests/third_party.sh && exit 0
# An index that answers and does not give all is the network's failure, not the programs'.
fetched && exit 1
echo "not all could be installed of what $programs need"
exit 77
