#include "tools/simcuda/ptx/lost_writes.h"

#include <atomic>

#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {
namespace {

std::atomic<bool> losing{false};

}  // namespace

bool writes_may_be_lost() {
    return losing;
}

void lose_writes() {
    losing = true;
}

const char kPreludeLosing[] = R"C(
INLINE u64 sc_landing(struct sc_thread* t, u64 address, u32 atomic) {
    const struct sc_tally* tally = (struct sc_tally*)t->block->executor;
    return address - tally->host_begin < tally->host_span ? tally->landing(tally, address, atomic) : address;
}
)C";

}  // namespace simcuda::ptx
