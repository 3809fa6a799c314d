// NVTX: ranges that the program, or a library of its, has named ("forward", "epoch 3") become regions of the
// trace. NVTX is header-only: each copy of it loads what NVTX_INJECTION64_PATH names (`lms run` sets it where
// a trace is written and the user has named no other tool) and asks this for its functions.
#include <lms/lms.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>

#include "shim/trace/writer.h"
#include "shim/util/keep_errno.h"
#include "shim/util/mutex.h"

namespace lms::entry {
namespace {

// As NVTX's headers lay these out; the numbers are for ever.
using Function = void (*)();
struct Callbacks {
    std::size_t bytes;
    int (*functions_of)(int module, Function*** table, unsigned* count);
};
struct Attributes {
    std::uint16_t version, bytes;
    std::uint32_t category;
    std::int32_t colour_type;
    std::uint32_t colour;
    std::int32_t payload_type, reserved;
    std::uint64_t payload;
    std::int32_t message_type;
    const void* message;
};
constexpr unsigned kCallbacks = 1;
constexpr int kCore = 1, kDomains = 5;  // modules
constexpr std::int32_t kText = 1, kRegistered = 3;

const lms_api& api() {
    static const lms_api& mine = *lms_api_get(LMS_API_VERSION);
    return mine;
}

const char* name_of(const Attributes* range) {
    if (!range || range->bytes < sizeof(Attributes) || !range->message) return "?";
    // What is registered is told by the text itself (register_string).
    const bool known = range->message_type == kText || range->message_type == kRegistered;
    return known ? static_cast<const char*>(range->message) : "?";
}

// Answers the level of the range, from 0.
thread_local int level = 0;
int push(const char* name) {
    api().region_begin(name ? name : "?");
    return level++;
}
int pop() {
    if (level == 0) return -1;
    api().region_end();
    return --level;
}

// Ranges that end in another thread, or in another order.
struct Open {
    std::string name;
    std::uint64_t begin_ns;
};
struct OpenRanges {
    util::Mutex mutex{util::LockOrder::Leaf};
    std::unordered_map<std::uint64_t, Open> all LMS_GUARDED_BY(mutex);
    std::uint64_t last LMS_GUARDED_BY(mutex) = 0;
};
// Never destroyed, for threads may outlive static objects.
OpenRanges& open_ranges() {
    static OpenRanges& ranges = *new OpenRanges;
    return ranges;
}

std::uint64_t start(const char* name) noexcept try {
    const util::KeepErrno keep;
    OpenRanges& ranges = open_ranges();
    const util::Lock lock(ranges.mutex);
    ranges.all[++ranges.last] = {name ? name : "?", trace::now_ns()};
    return ranges.last;
} catch (const std::exception&) {
    return 0;
}

void end_range(std::uint64_t id) noexcept try {
    const util::KeepErrno keep;
    OpenRanges& ranges = open_ranges();
    Open ended;
    {
        const util::Lock lock(ranges.mutex);
        const auto found = ranges.all.find(id);
        if (found == ranges.all.end()) return;
        ended = std::move(found->second);
        ranges.all.erase(found);
    }
    if (trace::Writer* const writer = trace::begun())
        writer->write(
            trace::Region{ended.name, static_cast<std::uint32_t>(gettid()), ended.begin_ns, trace::now_ns()});
} catch (const std::exception&) {
}

// The handle of a string is the string. A program registers few, and never unregisters one.
const void* register_string(void*, const char* text) noexcept try {
    return (new std::string(text ? text : "?"))->c_str();
} catch (const std::exception&) {
    return nullptr;
}

struct Answer {
    int module;
    unsigned number;
    Function function;
};
template <typename Result, typename... Arguments>
Answer answer(int module, unsigned number, Result (*function)(Arguments...)) {
    return {module, number, reinterpret_cast<Function>(function)};
}

}  // namespace
}  // namespace lms::entry

// Not 0: it is answered from now on. `table_of` gives tables of NVTX's by number.
extern "C" [[gnu::visibility("default")]] int InitializeInjectionNvtx2(const void* (*table_of)(unsigned)) {
    using namespace lms::entry;
    if (!lms::trace::expected()) return 0;
    const auto* const callbacks = static_cast<const Callbacks*>(table_of(kCallbacks));
    if (!callbacks || callbacks->bytes < sizeof(Callbacks)) return 0;
    const Answer answers[] = {
        answer(
            kCore, 4, +[](const Attributes* range) { return start(name_of(range)); }),
        answer(kCore, 5, start),
        answer(kCore, 7, end_range),
        answer(
            kCore, 8, +[](const Attributes* range) { return push(name_of(range)); }),
        answer(kCore, 9, push),
        answer(kCore, 11, pop),
        answer(
            kDomains, 2, +[](void*, const Attributes* range) { return start(name_of(range)); }),
        answer(
            kDomains, 3, +[](void*, std::uint64_t id) { end_range(id); }),
        answer(
            kDomains, 4, +[](void*, const Attributes* range) { return push(name_of(range)); }),
        answer(
            kDomains, 5, +[](void*) { return pop(); }),
        answer(kDomains, 10, register_string),
    };
    for (const Answer& one : answers) {
        Function** table = nullptr;
        unsigned count = 0;
        if (callbacks->functions_of(one.module, &table, &count) != 0 && table && one.number < count)
            *table[one.number] = one.function;
    }
    return 1;
}
