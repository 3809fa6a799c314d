#include "tools/simcuda/exec/tally.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace simcuda::exec {
namespace {

std::atomic<HostRanges (*)()> find_ranges{nullptr};
std::atomic<bool> stores_are_lost{false}, atomics_are_lost{false};

const HostRange* range_at(const sc_tally& tally, u64 address) {
    const auto& ranges = *static_cast<const HostRanges*>(tally.host_ranges);
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), address,
                                         [](u64 at, const HostRange& range) { return at < range.begin; });
    if (behind == ranges.begin() || address >= std::prev(behind)->end) return nullptr;
    return &*std::prev(behind);
}

// Both are called by kernels for what lies between the first range and the last.
void touch_host(sc_tally* tally, u64 address, u32 bytes, u32 write) {
    if (range_at(*tally, address) == nullptr) return;
    tally->bytes -= bytes;
    (write != 0 ? tally->host_written : tally->host_read) += bytes;
}

u64 landing(const sc_tally* tally, u64 address, u32 atomic) {
    constexpr u64 kWord = 8;  // the largest that an atomic is done on
    alignas(64) static thread_local u8 nowhere[64];
    const HostRange* const range = range_at(*tally, address);
    if (range == nullptr || !range->mapped || !(atomic != 0 ? atomics_are_lost : stores_are_lost))
        return address;
    // An atomic is told what was there.
    std::memcpy(nowhere, reinterpret_cast<const void*>(address / kWord * kWord), kWord);
    return reinterpret_cast<u64>(nowhere) + address % kWord;
}

}  // namespace

void set_host_ranges(HostRanges (*find)()) {
    find_ranges = find;
}

HostRanges host_ranges() {
    HostRanges (*const find)() = find_ranges;
    return find != nullptr ? find() : HostRanges{};
}

void lose_host_writes(bool stores, bool atomics) {
    stores_are_lost = stores;
    atomics_are_lost = atomics;
}

sc_tally empty_tally(const HostRanges& ranges) {
    sc_tally tally{};
    tally.touch_host = touch_host;
    tally.landing = landing;
    tally.host_ranges = &ranges;
    if (!ranges.empty()) {
        tally.host_begin = ranges.front().begin;
        tally.host_span = ranges.back().end - ranges.front().begin;
    }
    return tally;
}

void add_tally(sc_tally& sum, const sc_tally& tally) {
    sum.operations += tally.operations;
    sum.bytes += tally.bytes;
    sum.host_read += tally.host_read;
    sum.host_written += tally.host_written;
}

}  // namespace simcuda::exec
