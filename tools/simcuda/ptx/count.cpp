#include "tools/simcuda/ptx/count.h"

#include <atomic>

#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {
namespace {

std::atomic<bool> counting{false};

}  // namespace

bool counts_work() {
    return counting;
}

void count_work() {
    counting = true;
}

// A function's own count is added to its block's when the function is left.
const char kPreludeCounting[] = R"C(
struct sc_own_count { struct sc_thread* t; u64 operations; };
INLINE void sc_end_count(struct sc_own_count* own) {
    ((struct sc_tally*)own->t->block->executor)->operations += own->operations;
}
INLINE void sc_touch(struct sc_thread* t, u64 address, u32 bytes, u32 write) {
    struct sc_tally* tally = (struct sc_tally*)t->block->executor;
    tally->bytes += bytes;
    if (address - tally->host_begin < tally->host_span) tally->touch_host(tally, address, bytes, write);
}
)C";

}  // namespace simcuda::ptx
