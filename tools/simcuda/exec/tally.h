// What a kernel has done, where its code counts that (ptx/count.h), and where it lands in memory of the
// host's, where its code asks (ptx/lost_writes.h).
#pragma once

#include <cstdint>
#include <vector>

#include "tools/simcuda/exec/abi.h"

namespace simcuda::exec {

// clang-format off
SIMCUDA_C_TEXT(kTallyText,
struct sc_tally {
    u64 operations;
    u64 bytes;
    u64 host_read;
    u64 host_written;
    u64 host_begin;
    u64 host_span;
    void (*touch_host)(struct sc_tally*, u64 address, u32 bytes, u32 write);
    u64 (*landing)(const struct sc_tally*, u64 address, u32 atomic);
    const void* host_ranges;
};
)
// clang-format on

// Where kernels reach memory that is the host's: host addresses.
struct HostRange {
    std::uint64_t begin, end;
    bool mapped;  // by virtual memory management, behind addresses that may lead to a device's too
};
using HostRanges = std::vector<HostRange>;  // in order

// Who knows where it lies when a kernel starts; unset: none is told apart.
void set_host_ranges(HostRanges (*find)());
HostRanges host_ranges();

// From now on what kernels write to mapped memory of the host's goes nowhere; what they read of it is as it
// was.
void lose_host_writes(bool stores, bool atomics);

// A count that has found nothing yet. The ranges must outlive it.
sc_tally empty_tally(const HostRanges& ranges);
void add_tally(sc_tally& sum, const sc_tally& tally);

class Grid;
sc_tally tally_of(const Grid& grid);  // when it has finished

}  // namespace simcuda::exec
