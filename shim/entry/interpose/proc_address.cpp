// cuGetProcAddress: the driver decides what a program gets; the shim only swaps its own function in for it.
//
// One base name stands for several ABIs (cuCtxSynchronize takes a context since CUDA 13) and for a legacy and
// a per-thread form, so a function is recognised by the pointer that the driver returned, never by its name
// alone.

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <tuple>

#include "shim/device/driver_table.h"
#include "shim/entry/interpose/exports.h"
#include "shim/entry/interpose/unseen_call.h"
#include "shim/util/log.h"

namespace lms::entry {
namespace {

using device::Entry;
using device::kRowCount;
using device::kRows;
using device::Row;

struct Query {
    const char* symbol;
    int version;
    cuuint64_t flags;
};

// Indices of the rows, sorted by base name and version.
std::span<const std::uint16_t> rows_by_base() {
    static const auto sorted = [] {
        std::array<std::uint16_t, kRowCount> order{};
        std::iota(order.begin(), order.end(), std::uint16_t{0});
        std::sort(order.begin(), order.end(), [](std::uint16_t a, std::uint16_t b) {
            return std::tie(kRows[a].base, kRows[a].introduced) <
                   std::tie(kRows[b].base, kRows[b].introduced);
        });
        return order;
    }();
    return sorted;
}

// The row whose ABI the query names: the newest not newer than its version, per-thread where asked for and
// there is one. nullptr if the table has none.
const Row* row_for(const Query& query) {
    const std::string_view base = query.symbol;
    const bool per_thread = (query.flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    const Row* best = nullptr;
    const std::span<const std::uint16_t> rows = rows_by_base();
    auto it =
        std::lower_bound(rows.begin(), rows.end(), base,
                         [](std::uint16_t index, std::string_view name) { return kRows[index].base < name; });
    for (; it != rows.end() && kRows[*it].base == base; ++it) {
        const Row& row = kRows[*it];
        if (row.introduced > query.version || (is_per_thread(row) && !per_thread)) continue;
        // In ascending version; a legacy form never takes the place of a per-thread one.
        if (best == nullptr || is_per_thread(row) || !is_per_thread(*best)) best = &row;
    }
    return best;
}

// The driver's own answer, in whichever version of the call it has; nullptr if it has no such function.
void* ask_driver(const Query& query) {
    void* function = nullptr;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (device::driver_has(Entry::cuGetProcAddress_v2)) {
        result = device::driver().cuGetProcAddress_v2(query.symbol, &function, query.version, query.flags,
                                                      nullptr);
    } else if (device::driver_has(Entry::cuGetProcAddress)) {
        result = device::driver().cuGetProcAddress(query.symbol, &function, query.version, query.flags);
    }
    return result == CUDA_SUCCESS ? function : nullptr;
}

// The driver's functions and the rows they are of, sorted by both. Built when the first one is looked up, as
// a library's start asks for hundreds.
struct Known {
    const void* function;
    std::uint16_t row;
    auto operator<=>(const Known&) const = default;
};
struct KnownFunctions {
    KnownFunctions() {
        for (std::uint16_t i = 0; i < kRowCount; ++i) {
            const void* function = device::driver_address(static_cast<Entry>(i));
            if (function != nullptr) known[count++] = {function, i};
        }
        std::sort(known.begin(), known.begin() + count);
    }
    std::array<Known, kRowCount> known{};
    std::size_t count = 0;
};

std::span<const Known> rows_of(const void* function) {
    static const KnownFunctions all;
    const auto end = all.known.begin() + all.count;
    const auto first = std::lower_bound(all.known.begin(), end, Known{function, 0});
    auto last = first;
    while (last != end && last->function == function) ++last;
    return {first, last};
}

// Which row the driver's answer to a query is; nullptr if none.
const Row* recognise(const Query& query, const void* function) {
    const std::span<const Known> rows = rows_of(function);
    if (rows.size() == 1) return &kRows[rows[0].row];
    const Row* wanted = row_for(query);
    for (const Known& each : rows) {
        if (&kRows[each.row] == wanted) return wanted;
    }
    if (!rows.empty()) return &kRows[rows[0].row];
    // A pointer that the driver exports under no name of the table. It has the wanted row's ABI if the driver
    // gives the same one for the version that introduced that ABI, and one newer than the table otherwise.
    if (wanted == nullptr) return nullptr;
    return ask_driver({query.symbol, wanted->introduced, query.flags}) == function ? wanted : nullptr;
}

// Passes on the driver's result, with the shim's function in place of the one that the driver gave.
CUresult with_hook(CUresult result, const Query& query, void** function) {
    if (result != CUDA_SUCCESS || query.symbol == nullptr || function == nullptr || *function == nullptr) {
        return result;
    }
    const Row* row = recognise(query, *function);
    if (row == nullptr) {
        *function = trampoline_to(*function, query.symbol, query.version);
        return result;
    }
    void* given = substitute(entry_of(*row), *function);
    log::debug("cuGetProcAddress {} version {} flags {}: {} {}", query.symbol, query.version, query.flags,
               given == *function ? "driver" : "hook", row->symbol);
    *function = given;
    return result;
}

// Where the driver lacks the call itself, or there is none.
CUresult find_nothing(void** function) {
    if (function != nullptr) *function = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

}  // namespace
}  // namespace lms::entry

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
    using namespace lms;
    if (!device::driver_has(device::Entry::cuGetProcAddress_v2)) {
        if (symbolStatus != nullptr) *symbolStatus = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return entry::find_nothing(pfn);
    }
    return entry::with_hook(
        device::driver().cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, symbolStatus),
        {symbol, cudaVersion, flags}, pfn);
}

CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
    using namespace lms;
    if (!device::driver_has(device::Entry::cuGetProcAddress)) return entry::find_nothing(pfn);
    return entry::with_hook(device::driver().cuGetProcAddress(symbol, pfn, cudaVersion, flags),
                            {symbol, cudaVersion, flags}, pfn);
}
