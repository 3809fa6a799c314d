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
bare() { SIMCUDA_MEMORY=$1 "$build/bench/$2" "$3" "$4"; }
shimmed() { SIMCUDA_MEMORY=$1 LD_PRELOAD=$shim "$build/bench/$2" "$3" "$4"; }

row "what" "without" "with" "ratio"
without=$(bare 256M launches 400 0)
fits=$(shimmed 256M launches 400 0)
row "launch, everything fits, ns" "$without" "$fits" "$(ratio "$fits" "$without")"
pressed=$(shimmed 16M launches 400 32)
row "launch of resident buffers, not everything fits, ns" "$without" "$pressed" "$(ratio "$pressed" "$without")"

# Of eight resident buffers, behind a driver that does nothing, from one thread and from each of several at once.
of_threads() {
    LD_LIBRARY_PATH=$PWD/$build/bench/null LMS_HOST_MAPPING=on LMS_LIMIT=32M LMS_RESERVE=0 LD_PRELOAD=$shim \
        "$build/bench/calls" launch8 200000 12 1 "$1"
}
alone=$(of_threads 1)
for threads in 2 4; do
    each=$(of_threads $threads)
    row "  with eight buffers, from one thread and each of $threads, ns" "$alone" "$each" "$(ratio "$each" "$alone")"
done

# Modelled times, by the simulated GPU's own clock: moving a layer's 4 MiB takes 4.2 ms one way, a launch a quarter of that, and a
# layer's kernel as long as the move or half as long.
SIMCUDA_CLOCK=simulated SIMCUDA_KERNEL_US=1049 SIMCUDA_H2D_GBPS=1 SIMCUDA_D2H_GBPS=1 LMS_RESERVE=0
export SIMCUDA_CLOCK SIMCUDA_KERNEL_US SIMCUDA_H2D_GBPS SIMCUDA_D2H_GBPS LMS_RESERVE
shape() { "$build/bench/shapes" "$1" 4 "$2" "$3"; }
share_of() { awk -v mib="$(SIMCUDA_MEMORY=1G shape "$1" 1 0)" -v ratio="$2" 'BEGIN { printf "%dK", mib * 1024 / ratio }'; }
# The first steps are those that show what the program repeats.
pressed() { SIMCUDA_MEMORY=$(share_of "$1" "$3") LD_PRELOAD=$shim shape "$1" "$2" 8; }
for launches in 4:just 2:half; do
    for program in training inference; do
        length=${launches%:*}
        in_memory=$(SIMCUDA_MEMORY=1G shape "$program" "$length" 3)
        fits=$(SIMCUDA_MEMORY=1G LD_PRELOAD=$shim shape "$program" "$length" 3)
        what="$program, kernels ${launches#*:} as long as a move"
        row "$what, all fits, ms a step" "$in_memory" "$fits" "$(ratio "$fits" "$in_memory")"
        for ratio in 1.5 2 3; do
            time=$(pressed "$program" "$length" $ratio)
            row "  at ${ratio}x" "$in_memory" "$time" "$(ratio "$time" "$in_memory")"
        done
        time=$(LMS_POLICY=lru pressed "$program" "$length" 2)
        row "  at 2x, LMS_POLICY=lru" "$in_memory" "$time" "$(ratio "$time" "$in_memory")"
        # A level of safety costs what it keeps from overlapping.
        for level in args strict; do
            time=$(LMS_SAFETY=$level pressed "$program" "$length" 2)
            row "  at 2x, LMS_SAFETY=$level" "$in_memory" "$time" "$(ratio "$time" "$in_memory")"
        done
    done
done
# Whatever else the machine does.
runs=$(for run in 1 2 3 4 5; do pressed training 2 2; done | sort -n)
least=$(echo "$runs" | head -1)
most=$(echo "$runs" | tail -1)
row "training, half as long, at 2x: least and most of five runs" "$least" "$most" \
    "$(awk -v a="$most" -v b="$least" 'BEGIN { printf "%.4f", a / b }')"
# The first evictions at 2x, where page-locking is as fast as the driver's was seen to be (32 MB in 11.6 ms,
# github.com/rapidsai/dask-cuda/issues/106) and the link is PCIe 4.0's.
longest_calls() {
    SIMCUDA_MEMORY=128M SIMCUDA_PIN_GBPS=2.76 SIMCUDA_H2D_GBPS=25 SIMCUDA_D2H_GBPS=25 SIMCUDA_KERNEL_US=335 \
        LD_PRELOAD=$shim "$build/bench/longest_call" "$1" 16 16 24
}
for kind in read written; do
    longest_calls $kind | {
        read -r allocation _ launch later
        row "weights that are $kind: longest launch, in the end and ever, ms" "$later" "$launch" "$(ratio "$launch" "$later")"
        own=$(awk 'BEGIN { printf "%.2f", 16 * 1.048576 / 2.76 }')
        row "  longest allocation, page-locking of its bytes and all, ms" "$own" "$allocation" "$(ratio "$allocation" "$own")"
    }
done
unset SIMCUDA_CLOCK SIMCUDA_KERNEL_US SIMCUDA_H2D_GBPS SIMCUDA_D2H_GBPS LMS_RESERVE

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
    per_call() { # kind, more buffers, streams, calls before the counted ones
        few=$(instructions "$build/bench/calls" "$1" "${4:-1000}" "$2" "${3:-1}")
        many=$(instructions "$build/bench/calls" "$1" $((${4:-1000} + 10000)) "$2" "${3:-1}")
        echo $(((many - few) / 10000))
    }
    LD_LIBRARY_PATH=$PWD/$build/bench/null
    # Or it would be asked in a process apart, which valgrind does not follow.
    LMS_HOST_MAPPING=on
    export LMS_HOST_MAPPING
    for call in launch copy set upload attribute record; do
        without=$(per_call "$call" 0)
        with=$(export LD_PRELOAD="$shim" && per_call "$call" 0)
        row "$call, everything fits, instructions a call" "$without" "$with" "$(ratio "$with" "$without")"
    done
    # Of an allocation and its free, with more and more others live, with holes between them, or freed in a stream
    # that does not get there.
    allocation() { # kind, what
        least=$(export LD_PRELOAD="$shim" && per_call "$1" 1000)
        row "allocation and free, $2, 1000 others, instructions" - "$least" -
        for others in 10000 40000; do
            more=$(export LD_PRELOAD="$shim" && per_call "$1" $others)
            row "  $others others" "$least" "$more" "$(ratio "$more" "$least")"
        done
    }
    allocation same "of one size"
    allocation random "of random sizes"
    allocation no-hole "fitting no hole"
    (export NULL_DRIVER_BUSY=1 && allocation ordered "in stream order")
    # Of one whose buffers are resident while others are not.
    LMS_LIMIT=32M
    LMS_RESERVE=0
    export LMS_LIMIT LMS_RESERVE
    for call in launch launch8 copy set; do
        without=$(per_call "$call" 12)
        with=$(export LD_PRELOAD="$shim" && per_call "$call" 12)
        row "$call, not everything fits, instructions a call" "$without" "$with" "$(ratio "$with" "$without")"
    done
    without=$(per_call struct 12)
    with=$(export LD_PRELOAD="$shim" && per_call struct 12)
    row "launch with 4 KiB of parameters, the same" "$without" "$with" "$(ratio "$with" "$without")"
    # A launch of resident buffers, with 12 buffers in all, in one stream, after 1,000 others; then at more of each.
    with=$(export LD_PRELOAD="$shim" && per_call launch 12)
    at_more() {
        more=$(export LD_PRELOAD="$shim" && per_call launch "$2" "$3" "$4")
        row "  $1" "$with" "$more" "$(ratio "$more" "$with")"
    }
    for buffers in 60 120 240; do at_more "with $buffers buffers" $buffers 1 1000; done
    for streams in 10 100 1000; do at_more "in $streams streams in turn" 12 $streams 4000; done
    for launches in 10000 40000 80000; do at_more "after $launches others" 12 1 $launches; done
    # The same, with what it writes into a trace.
    traced=$(export LD_PRELOAD="$shim" LMS_TRACE="$build/bench/trace" && per_call launch 12)
    row "launch, not everything fits, without a trace and with" "$with" "$traced" "$(ratio "$traced" "$with")"
    unset LMS_LIMIT LMS_RESERVE LMS_HOST_MAPPING
    LD_LIBRARY_PATH=$PWD/$build/sim
fi

# What reads traces, in seconds.
"$build/bench/write_trace" "$build/bench/trace" 1000000
seconds() {
    begin=$(date +%s.%N)
    "$@" >/dev/null
    awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { printf "%.2f", end - begin }'
}
row "a million events of a trace: lms replay, one policy and the optimum, s" - "$(seconds "$build/lms" replay "$build/bench/trace")" -
row "  lms report --html, s" - "$(seconds "$build/lms" report "$build/bench/trace" --html "$build/bench/trace.html")" -
rm -f "$build/bench/trace" "$build/bench/trace.html"

BUILD=$build /usr/bin/python3 -B tests/bench/foresight.py
BUILD=$build python3 -B tests/bench/tenants.py

for program in "$build"/bench/*_bench; do
    [ -x "$program" ] || continue
    "$program"
done
