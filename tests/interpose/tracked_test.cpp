// Tracked rows: a wrapper in the function's own type, which passes every argument on.
#include <doctest/doctest.h>

#include <cstddef>

#include "shim/device/cuda_api.h"
#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

using namespace drivers;

namespace {

template <typename... Arguments>
constexpr std::size_t arity(CUresult (*)(Arguments...)) {
    return sizeof...(Arguments);
}

#define ARITY_HOOK(symbol) 0
#define ARITY_PASS ARITY_HOOK
#define ARITY_ANY ARITY_HOOK
#define ARITY_RETRY(symbol) arity(&::symbol)

constexpr std::size_t kArity[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) arity(&::symbol),
#define LMS_INTEROP(symbol, base, introduced, stream, action) 0,
#define LMS_LATER(symbol, base, introduced, stream, action) ARITY_##action(symbol),
#include "shim/entry_points.def"
};

using TrackedCall = int (*)(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                            std::int64_t, std::int64_t, std::int64_t);

}  // namespace

PROBE(tracked_calls_pass_their_arguments_on) {
    int tracked = 0;
    for (const table::Row& row : table::kRows) {
        if (row.action != table::Action::RETRY) continue;
        CAPTURE(row.symbol);
        const std::size_t index = &row - std::begin(table::kRows);
        REQUIRE(kArity[index] > 0);
        REQUIRE(kArity[index] <= fake::kIntegers);
        const int calls = record().calls;
        const auto call = reinterpret_cast<TrackedCall>(shim_function(row.symbol));
        CHECK(call(11, 12, 13, 14, 15, 16, 17, 18) == fake::kAnswerBase + static_cast<int>(index));
        CHECK(record().calls == calls + 1);
        for (std::size_t k = 0; k < kArity[index]; ++k) {
            CHECK(record().integers[k] == 11 + static_cast<std::int64_t>(k));
        }
        ++tracked;
    }
    CHECK(tracked > 40);
}

TEST_CASE("tracked: a tracked call reaches the driver once, with its arguments") {
    probe::run_probe("tracked_calls_pass_their_arguments_on", probe::preloaded()).check();
}
