// The one table, as plain data for the tests.
#pragma once

#include <string_view>

namespace table {

enum class Stream { NONE, LEGACY, PTDS, PTSZ };
enum class Action { HOOK, RETRY, PASS, ANY };

struct Row {
    std::string_view symbol;
    std::string_view base;
    int introduced;
    Stream stream;
    Action action;
    bool interop = false;
    bool later = false;  // the installed headers need not have it
};

inline constexpr Row kRows[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) \
    {#symbol, #base, introduced, Stream::stream, Action::action},
#define LMS_INTEROP(symbol, base, introduced, stream, action) \
    {#symbol, #base, introduced, Stream::stream, Action::action, true},
#define LMS_LATER(symbol, base, introduced, stream, action) \
    {#symbol, #base, introduced, Stream::stream, Action::action, false, true},
#include "shim/entry_points.def"
};

constexpr bool is_per_thread(const Row& row) {
    return row.stream == Stream::PTDS || row.stream == Stream::PTSZ;
}

}  // namespace table
