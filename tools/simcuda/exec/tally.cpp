#include "tools/simcuda/exec/tally.h"

#include <algorithm>
#include <atomic>

namespace simcuda::exec {
namespace {

std::atomic<HostRanges (*)()> find_ranges{nullptr};

// Called by kernels for what lies between the first range and the last.
void touch_host(sc_tally* tally, u64 address, u32 bytes, u32 write) {
    const auto& ranges = *static_cast<const HostRanges*>(tally->host_ranges);
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), address,
                                         [](u64 at, const HostRange& range) { return at < range.begin; });
    if (behind == ranges.begin() || address >= std::prev(behind)->end) return;
    tally->bytes -= bytes;
    (write != 0 ? tally->host_written : tally->host_read) += bytes;
}

}  // namespace

void set_host_ranges(HostRanges (*find)()) {
    find_ranges = find;
}

HostRanges host_ranges() {
    HostRanges (*const find)() = find_ranges;
    return find != nullptr ? find() : HostRanges{};
}

sc_tally empty_tally(const HostRanges& ranges) {
    sc_tally tally{};
    tally.touch_host = touch_host;
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
