#!/bin/sh
# Random programs for a time, each part with its share of it, and all along one process that may not come to hold more:
#
#   soak.sh MINUTES [FIRST]
#
# FIRST is the seed that all begins with (default: the time of day, so that no two are alike); what failed is told with its
# own. Ends with 0 if nothing failed. Expects the random programs and `make fuzz`'s built; BUILD is where.
set -u

cd "$(dirname "$0")/.." || exit 2
BUILD=${BUILD:-build}
export BUILD
minutes=${1:?how many minutes}
first=${2:-$(date +%s)}
seeds=$first-$((first + 99999999))

share() { echo "$minutes" | awk -v share="$1" '{ print $1 * share }'; }

failed=
# part NAME COMMAND...
part() {
    name=$1
    shift
    echo "soak: $name"
    "$@" || failed="$failed, $name"
}

inputs() {
    set -- tests/fuzz/corpus/*
    make fuzz FUZZ_SEED="$first" FUZZ_UNTIL="-max_total_time=$(share 6 | awk -v targets=$# '{ print int($1 / targets) + 1 }')"
}

echo "soak: $minutes minutes, from seed $first"
python3 -B tests/random/soak.py --minutes "$minutes" &
endless=$!
part "random programs" python3 -B tests/random/run.py run --seeds "$seeds" --minutes "$(share 0.35)"
part "with yields" python3 -B tests/random/run.py run --seeds "$seeds" --minutes "$(share 0.3)" --yields
part "with guards" python3 -B tests/random/run.py run --seeds "$seeds" --minutes "$(share 0.05)" --guards
part "calls that fail" python3 -B tests/faults/sweep.py run --seeds "$seeds" --part "$first/97" --minutes "$(share 0.2)"
part "made-up inputs" inputs
wait $endless || failed="$failed, one process all along"
[ -z "$failed" ] || { echo "soak: failed:${failed#,}"; exit 1; }
echo "soak: nothing failed"
