#!/bin/sh
# Measures what the shim costs, on the simulated GPU: each line is a ratio of two figures of this run, so that the
# machine's speed cancels out. Instruction counts (callgrind) stand in where time is too noisy. Expects everything built.
set -eu
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")/.."
build=${BUILD:-build}
shim=$PWD/$build/liblmsshim.so
LD_LIBRARY_PATH=$PWD/$build/sim
SIMCUDA_GRANULARITY=64K SIMCUDA_DELAY_US=0 LMS_THRESHOLD=64K LMS_LOG=off
export LD_LIBRARY_PATH SIMCUDA_GRANULARITY SIMCUDA_DELAY_US LMS_THRESHOLD LMS_LOG

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
row() { printf '  %-58s %12s %12s %8s\n' "$@"; }
bare() { SIMCUDA_MEMORY=$1 "$build/bench/$2" "$3" "$4" ${5:+"$5"}; }
shimmed() { SIMCUDA_MEMORY=$1 LD_PRELOAD=$shim "$build/bench/$2" "$3" "$4" ${5:+"$5"}; }

row "what" "without" "with" "ratio"
without=$(bare 256M launches 2000 0)
fits=$(shimmed 256M launches 2000 0)
row "launch, everything fits, ns" "$without" "$fits" "$(ratio "$fits" "$without")"
pressed=$(shimmed 16M launches 2000 32)
row "launch of resident buffers, not everything fits, ns" "$without" "$pressed" "$(ratio "$pressed" "$without")"

# Modelled times, spent asleep: a kernel takes twice as long as moving its buffer one way.
SIMCUDA_KERNEL_US=2000 SIMCUDA_H2D_GBPS=1 SIMCUDA_D2H_GBPS=1
export SIMCUDA_KERNEL_US SIMCUDA_H2D_GBPS SIMCUDA_D2H_GBPS
in_memory=$(bare 64M layers 16 1 7)
fits=$(shimmed 64M layers 16 1 7)
row "16 layers forward and back, everything fits, ms" "$in_memory" "$fits" "$(ratio "$fits" "$in_memory")"
for memory in 12M:1.5x 9M:2x 6M:3x; do
    time=$(shimmed "${memory%:*}" layers 16 1 7)
    row "the same at ${memory#*:} of the GPU, ms" "$in_memory" "$time" "$(ratio "$time" "$in_memory")"
done
# A level of safety costs what it keeps from overlapping.
for level in args opaque strict; do
    export LMS_SAFETY=$level
    time=$(shimmed 9M layers 16 1 7)
    row "the same at 2x, LMS_SAFETY=$level, ms" "$in_memory" "$time" "$(ratio "$time" "$in_memory")"
done
unset LMS_SAFETY

if command -v valgrind >/dev/null 2>&1; then
    instructions() {
        valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1 | awk '/Collected/ { print $4 }'
    }
    without=$(instructions "$(command -v true)")
    with=$(LD_PRELOAD=$shim instructions "$(command -v true)")
    row "start of a process without CUDA, instructions" "$without" "$with" "$(ratio "$with" "$without")"

    # As much of its start as there is without NVIDIA's driver; its initialisation is not in it.
    libraries=${CUDA_HOME:-/usr/local/cuda}/lib64
    [ -d "$libraries" ] || libraries=${CUDA_HOME:-/usr/local/cuda}/lib
    LD_LIBRARY_PATH=$libraries:$PWD/$build/sim
    without=$(instructions "$build/bench/start")
    with=$(export LD_PRELOAD="$shim" && instructions "$build/bench/start")
    row "start of a process that loads cuBLASLt, instructions" "$without" "$with" \
        "$(awk -v a="$with" -v b="$without" 'BEGIN { printf "%.4f", a / b }')"

    # Of one call when everything fits, behind a driver that does nothing, loop and test of the result included.
    per_call() {
        few=$(instructions "$build/bench/calls" "$1" 1000)
        many=$(instructions "$build/bench/calls" "$1" 11000)
        echo $(((many - few) / 10000))
    }
    LD_LIBRARY_PATH=$PWD/$build/bench/still
    for call in launch copy set upload attribute record; do
        LD_PRELOAD=$shim "$build/bench/calls" "$call" 1
        without=$(per_call "$call")
        with=$(export LD_PRELOAD="$shim" && per_call "$call")
        row "$call, everything fits, instructions a call" "$without" "$with" "$(ratio "$with" "$without")"
    done
    LD_LIBRARY_PATH=$PWD/$build/sim
fi
for program in "$build"/bench/*_bench; do
    [ -x "$program" ] || continue
    "$program"
done
