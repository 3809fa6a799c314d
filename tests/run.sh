#!/bin/sh
# Runs every test: the doctest program of each folder with *_test.cpp, then the scripts tests/*/*.sh, each of which is
# one test that passes by ending with 0. One that ends with 77 could not be run here: its last line says why, and it counts
# as neither. Failures are printed as they come; the last line is the sum. Ends with 0 if there were tests and none failed.
# Expects everything built; BUILD is where.
set -u

cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
export BUILD

# A test says itself what its programs find in their environment.
for variable in $(env | sed -n 's/^\(LMS_[A-Za-z_]*\|SIMCUDA_[A-Za-z_]*\|LD_PRELOAD\|LD_LIBRARY_PATH\)=.*/\1/p'); do
    unset "$variable"
done

# Far above what any takes; only a program that hangs meets it.
longest=1800

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

passed=0
failed=0

# count STATUS: the cases that doctest reports in the log. A program that reports none, or that ends badly though all
# its cases passed, is a failed test by itself.
count() {
    program_passed=$(sed -n 's/^\[doctest\] test cases:.* \([0-9]*\) passed.*/\1/p' "$log" | tail -n 1)
    program_failed=$(sed -n 's/^\[doctest\] test cases:.* \([0-9]*\) failed.*/\1/p' "$log" | tail -n 1)
    program_passed=${program_passed:-0}
    program_failed=${program_failed:-0}
    if [ "$program_failed" -eq 0 ] && { [ "$1" -ne 0 ] || [ "$program_passed" -eq 0 ]; }; then
        program_failed=1
    fi
}

# report NAME STATUS
report() {
    passed=$((passed + program_passed))
    failed=$((failed + program_failed))
    if [ "$program_failed" -gt 0 ]; then
        cat "$log"
        [ "$2" -ne 124 ] || echo "$1: stopped after $longest s"
    fi
    printf '%s: %s passed, %s failed (status %s)\n' "$1" "$program_passed" "$program_failed" "$2"
}

for folder in tests/*/; do
    set -- "$folder"*_test.cpp
    [ -e "$1" ] || continue
    folder=$(basename "$folder")
    timeout -k 10 "$longest" "$BUILD/tests/$folder" --no-colors=1 >"$log" 2>&1
    status=$?
    count "$status"
    report "$folder" "$status"
done

for script in tests/*/*.sh; do
    [ -e "$script" ] || continue
    timeout -k 10 "$longest" sh "$script" >"$log" 2>&1
    status=$?
    if [ "$status" -eq 77 ]; then
        echo "$script: not run: $(tail -n 1 "$log")"
        continue
    fi
    program_passed=0 program_failed=0
    if [ "$status" -eq 0 ]; then program_passed=1; else program_failed=1; fi
    report "$script" "$status"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
