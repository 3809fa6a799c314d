// Tracked rows: a wrapper in the function's own type, which passes every argument on.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "shim/device/cuda_api.h"
#include "tests/interpose/drivers.h"
#include "tests/interpose/probe.h"

using namespace drivers;

namespace {

// Of arguments in registers: structs as large as IPC handles are not.
template <typename... Arguments>
constexpr std::size_t arity(CUresult (*)(Arguments...)) {
    return (std::size_t{std::is_scalar_v<Arguments>} + ... + 0);
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

template <typename... Arguments>
constexpr bool takes_stream(CUresult (*)(Arguments...)) {
    return (std::is_same_v<Arguments, CUstream> || ...);
}

constexpr bool kTakesStream[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) takes_stream(&::symbol),
#define LMS_INTEROP(symbol, base, introduced, stream, action) false,
#define LMS_LATER(symbol, base, introduced, stream, action) false,
#include "shim/entry_points.def"
};

// Ask a stream, change what it is, or mark a place in it; or take addresses of 32 bits.
constexpr std::string_view kGiveNoWork[] = {"cuStream",         "cuEventRecord",     "cuMemcpy2DAsync",
                                            "cuMemcpy3DAsync",  "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync",
                                            "cuMemcpyHtoDAsync"};

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

// Who waits for all work is to know of what a thread's own stream was given (entry/oom_retry.cpp).
TEST_CASE("tracked: a function that gives a stream work is a hook, or tracked") {
    for (const table::Row& row : table::kRows) {
        const std::size_t index = &row - std::begin(table::kRows);
        if (row.action != table::Action::PASS || !kTakesStream[index]) continue;
        CAPTURE(row.symbol);
        CHECK(std::ranges::any_of(kGiveNoWork, [&](std::string_view each) {
            return std::string_view(row.symbol).starts_with(each);
        }));
    }
}
