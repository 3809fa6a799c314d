#!/bin/sh
# Trains the demo three times and compares: on a GPU that has room for it, on one with half the room, and on the
# small one again with lmsshim preloaded. On a real GPU where there is one with CUDA's runtime, else on the simulated one.
# It lies beside what it runs: in the build folder, or where that was installed (`lms demo`).
#
# usage: demo.sh [--steps N] [TEXT...]     TEXTs are files to train on; default: the project's own documents and headers
#
# Exits 1 when an outcome is not the expected one.
set -eu
LC_ALL=C
export LC_ALL
here=$(cd "$(dirname "$0")" && pwd)
demo=$here/demo
shim=$here/liblmsshim.so
steps=120
if [ "${1:-}" = --steps ]; then
    steps=$2
    shift 2
fi
[ $# -gt 0 ] || set -- "$here/demo.txt"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

if [ -t 1 ]; then
    bold=$(printf '\033[1m') red=$(printf '\033[31m') green=$(printf '\033[32m') plain=$(printf '\033[0m')
else
    bold='' red='' green='' plain=''
fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

# ---------------------------------------------------------------- the GPU, and the same made small
libraries=${CUDA_HOME:-/usr/local/cuda}/lib64
if nvidia-smi -L 2>/dev/null | grep -q '^GPU' && LD_LIBRARY_PATH=$libraries "$demo" --help >/dev/null 2>&1; then
    memory=4G left=2560
    big="whole GPU" small="$left MiB of it"
    printf 'The GPU: %s\n' "$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader | head -n 1)"
    # The small GPU is the same one while another process holds the rest of its memory, which it does until its
    # standard input ends: when this script closes it, or is gone.
    make_small() {
        mkfifo "$work/tenant"
        "$demo" --leave ${left}M <"$work/tenant" >"$work/tenant.out" 2>&1 &
        tenant=$!
        exec 3>"$work/tenant"
        until grep -q '^holding' "$work/tenant.out"; do
            kill -0 "$tenant" 2>/dev/null || { cat "$work/tenant.out"; exit 1; }
            sleep 0.2
        done
        printf '\nAnother process makes the GPU small: %s\n' "$(cat "$work/tenant.out")"
    }
    make_big() {
        exec 3>&-
        wait "$tenant"
    }
else
    memory=96M left=48
    big="GPU of 192 MiB" small="GPU of $left MiB"
    libraries=$here/sim
    printf 'No GPU here, or no CUDA runtime: this runs on the simulated one.\n'
    SIMCUDA_MEMORY=192M
    export SIMCUDA_MEMORY
    make_small() { SIMCUDA_MEMORY=${left}M; }
    make_big() { :; }
fi
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

# run NAME PRELOAD TEXT...: the demo, with its results in NAME.out, its losses in NAME.losses, its exit status in
# NAME.status and, where the shim is preloaded, its statistics in NAME.stats.
run() {
    name=$1 preload=$2
    shift 2
    {
        status=0
        LD_PRELOAD=$preload LMS_STATS=$work/$name.stats \
            "$demo" --memory $memory --steps "$steps" --losses "$work/$name.losses" "$@" || status=$?
        echo $status >"$work/$name.status"
    } | tee "$work/$name.out"
}

before=$(sha256sum "$demo")
title "1. $big"
run big '' "$@"
make_small
title "2. $small, without lmsshim"
run small '' "$@"
title "3. $small, with lmsshim"
run shim "$shim" "$@"
make_big
after=$(sha256sum "$demo")

# ---------------------------------------------------------------- the table
result() { sed -n "s/^  $2  *//p" "$work/$1.out"; }     # RUN LABEL: that line of a run's results
outcome() {
    case $(cat "$work/$1.status") in
        0) echo trained ;;
        1) echo 'out of memory' ;;
        *) echo failed ;;
    esac
}
statistic() { # RUN KEY: a number of the shim's statistics; nothing where there is none
    [ ! -f "$work/$1.stats" ] || sed -n "s/.*\"$2\": *\([0-9][0-9]*\).*/\1/p" "$work/$1.stats" | head -n 1
}
mebibytes() { awk -v bytes="$1" 'BEGIN { if (bytes == "") print "-"; else printf "%.1f MiB", bytes / 1048576 }'; }
row() {
    time=$(result "$1" time)
    printf '  %-28s%-15s%9s%15s%14s%14s\n' "$2" "$(outcome "$1")" "${time:--}" \
        "$(mebibytes "$(statistic "$1" peak_resident_bytes)")" "$(mebibytes "$(statistic "$1" bytes_in)")" \
        "$(mebibytes "$(statistic "$1" bytes_out)")"
}
printf '\n%s  %-28s%-15s%9s%15s%14s%14s%s\n' "$bold" run outcome time 'peak resident' 'bytes in' 'bytes out' "$plain"
row big "$big"
row small "$small"
row shim "$small with lmsshim"

# ---------------------------------------------------------------- the checks
failed=0
check() { # TEXT COMMAND...
    text=$1
    shift
    if "$@" >"$work/check.out" 2>&1; then
        printf '  %sok%s      %s\n' "$green" "$plain" "$text"
    else
        printf '  %sFAILED%s  %s\n' "$red" "$plain" "$text"
        sed 's/^/          /' "$work/check.out"
        failed=1
    fi
}
below() { awk -v loss="$1" -v bound="$2" 'BEGIN { exit !(loss != "" && loss + 0 < bound) }'; }
above() { [ "${1:-0}" -gt "$2" ]; }
same_line() { [ -n "$1" ] && [ "$1" = "$2" ]; }
losses=$(result shim losses)
last_loss=$(echo "$losses" | sed 's/.* to \([0-9.]*\).*/\1/')
# What is known of fewer steps is that they lead down.
bound=2.5
[ "$steps" -ge 120 ] || bound=$(echo "$losses" | sed 's/^\([0-9.]*\) .*/\1/')

title "Checks"
check "the big GPU trains the model" same_line "$(outcome big)" trained
check "the small GPU is out of memory" same_line "$(outcome small)" 'out of memory'
check "the small GPU trains it with lmsshim" same_line "$(outcome shim)" trained
check "more was moved out of the small GPU than it holds" above "$(statistic shim bytes_out)" $((left * 1048576))
check "the losses are the same, bit for bit" cmp "$work/big.losses" "$work/shim.losses"
check "they fall below $bound nats a character: ${last_loss:-none}" below "$last_loss" "$bound"
check "the sampled line is the same" same_line "$(result big sample)" "$(result shim sample)"
check "the program is the same, byte for byte" same_line "$before" "$after"
exit $failed
