#!/bin/sh
# Programs that nobody here wrote, unchanged, on the simulated GPU: each recipe of tests/third_party is run once without the
# shim on a GPU that is large enough, then with the shim on GPUs of a part of what the program used. Each run's output
# must be the answer; with the shim, memory must have moved. tests/third_party/README.md says what a recipe is.
#
#   sh tests/third_party.sh [recipe ...]
#
# With GUARDS=1 in the environment also with LMS_CHECK=1, where what is evicted may be unmapped.
#
# It installs Debian packages (as root) and downloads; `make test` has those that take least (tests/third_party/quick.sh).
# Ends with 0 if every run passed.
set -u
LC_ALL=C
export LC_ALL
cd "$(dirname "$0")/.." || exit 1
root=$PWD
build=$root/${BUILD:-build}
recipes=$root/tests/third_party
# Debian's own, whichever comes first on PATH: results do not depend on the machine, and its headers are Debian's package.
python=python3
[ ! -x /usr/bin/python3 ] || python=/usr/bin/python3
export recipes build label variant python
cuda=${CUDA_HOME:-/usr/local/cuda}
export CUDA_HOME="$cuda"

for variable in $(env | sed -n 's/^\(LMS_[A-Za-z_]*\|SIMCUDA_[A-Za-z_]*\|LD_PRELOAD\|LD_LIBRARY_PATH\)=.*/\1/p'); do
    unset "$variable"
done

# Far above what any takes; only a program that hangs meets it.
longest=900

[ $# -gt 0 ] || set -- $(cd tests/third_party && ls -- *.recipe | sed 's/\.recipe$//')

# counter KEY FILE...: the sum of a number that stands alone on its line of JSON.
counter() {
    key=$1
    shift
    cat "$@" 2>/dev/null | awk -F '[:,]' -v key="\"$key\"" '{ gsub(/ /, "", $1) } $1 == key { sum += $2 }
        END { printf "%.0f", sum }'
}

mib() { awk -v bytes="$1" 'BEGIN { printf "%.1f", bytes / 1048576 }'; }

row() { printf '%-26s %-22s %9s %9s %9s  %s\n' "$@"; }

install() { DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$1"; }

install_packages() {
    for package in $packages; do
        dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$' && continue
        install "$package" || { apt-get update -q && install "$package"; } || return 1
    done
}

# simulated LABEL BYTES [NAME=VALUE ...]: runs the program on a GPU of that size; its output goes to LABEL.out.
simulated() {
    label=$1 size=$2
    shift 2
    rm -f "$label".stats.* "$label.report"
    (
        export "SIMCUDA_MEMORY=$size" "SIMCUDA_REPORT=$label.report" "LD_LIBRARY_PATH=$build/sim:$cuda/lib64" \
            SIMCUDA_GRANULARITY=64K SIMCUDA_LOCAL_THREADS=64 LMS_THRESHOLD=16K LMS_LOG=error
        for setting in $settings "$@"; do export "${setting?}"; done
        timeout -k 10 "$longest" sh -c '. "$1" && program' sh "$recipes/$recipe.recipe"
    ) >"$label.out" 2>"$label.err"
    status=$?
    result=ok
    [ "$status" -eq 0 ] || result="ended with $status"
    # Where the recipe knows no answer, the first run's, without the shim, is it.
    [ "$result" != ok ] || [ -s answer ] || cp "$label.out" answer
    if [ "$result" = ok ] && ! cmp -s answer "$label.out"; then result="other output"; fi
    if [ "$result" = ok ] && [ "$(counter violation_count "$label.report")" != 0 ]; then result="broke a rule"; fi
}

# judge WHAT GPU IN OUT: prints the row of a run, and why where it failed.
judge() {
    row "$recipe${variant:+ $variant}" "$@" "$result"
    if [ "$result" = ok ]; then
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    diff answer "$label.out" | head -n 20
    tail -n 20 "$label.err"
}

defaults() { settings= memory=1G shares="2 4" strict_shares="2 4" unmapped_shares=2; }

# run_variant: without the shim, then with it on smaller GPUs.
run_variant() {
    defaults
    # shellcheck source=/dev/null
    . "$recipes/$recipe.recipe"
    smaller=$shares
    prefix=${variant:+$variant.}
    simulated "${prefix}whole" "$memory"
    peak=$(counter peak "${prefix}whole.report")
    judge "without the shim" "$(mib "$peak")" "" ""
    [ "$result" = ok ] || smaller=

    for share in $smaller; do
        for setting in "" LMS_SAFETY=strict SIMCUDA_HOST_VMM=0 ${GUARDS:+LMS_CHECK=1}; do
            case $setting in
            LMS_SAFETY=strict) tried=$strict_shares ;;
            SIMCUDA_HOST_VMM=0 | LMS_CHECK=1) tried=$unmapped_shares ;; # guards unmap what is evicted
            *) tried=$share ;;
            esac
            case " $tried " in *" $share "*) ;; *) continue ;; esac
            label=${prefix}1_$share${setting:+.$setting}
            simulated "$label" $((peak / share)) "LD_PRELOAD=$build/liblmsshim.so" "LMS_STATS=$label.stats.%p" $setting
            in=$(counter bytes_in "$label".stats.*) out=$(counter bytes_out "$label".stats.*)
            if [ "$result" = ok ] && { [ "$in" = 0 ] || [ "$out" = 0 ]; }; then result="nothing moved"; fi
            if [ "$result" = ok ] && grep -q '^lms: check: ' "$label.err"; then result="guards found something"; fi
            judge "1/$share $setting" "$(mib $((peak / share)))" "$(mib "$in")" "$(mib "$out")"
        done
    done
}

# Runs the recipe in its own folder and leaves "passed failed" in the file count.
check() {
    passed=0 failed=0 variant=
    packages= variants=
    fetch() { :; }
    defaults
    # shellcheck source=/dev/null
    . "$recipes/$recipe.recipe"
    result=ok label=fetch
    : >answer
    if ! { install_packages && { [ -e fetched ] || { fetch && : >fetched; }; }; } >fetch.out 2>fetch.err; then
        result="could not be fetched"
    elif command -v answer >/dev/null && { ! answer >answer 2>fetch.err || [ ! -s answer ]; }; then
        result="no answer to compare with"
    fi
    if [ "$result" = ok ]; then
        for variant in ${variants:-""}; do run_variant; done
    else
        judge "" "" "" ""
    fi
    echo "$passed $failed" >count
}

row program run "GPU MiB" "in MiB" "out MiB" result
all_passed=0 all_failed=0
for recipe; do
    mkdir -p "$build/programs/$recipe"
    rm -f "$build/programs/$recipe/count"
    (cd "$build/programs/$recipe" && check)
    read -r passed failed <"$build/programs/$recipe/count" || { passed=0 failed=1; }
    all_passed=$((all_passed + passed)) all_failed=$((all_failed + failed))
done
echo "$all_passed passed, $all_failed failed"
[ "$all_failed" -eq 0 ] && [ "$all_passed" -gt 0 ]
