// Buffers that are parts of a block, as a caching allocator has them: one begins where another lay, whose
// contents nobody reads any more.
#include "tests/random/driver.h"
#include "tests/random/machine.h"

namespace rnd {

bool Machine::may_be_part(std::uint32_t number) const {
    // Which GPU a block is on is no matter of its parts.
    return options_.parts && !pair_ && number % 2 == 1 && number / 2 < Divided::kCells;
}

// Where, so that it does not hang on what other threads have.
CUresult Machine::allocate_part(Buffer& buffer, std::uint32_t number, std::uint32_t where) {
    constexpr std::uint32_t kAligned = 16;
    const std::lock_guard lock(divided_.mutex);
    if (divided_.block == 0) {
        const CUresult result = CU(cuMemAlloc_v2)(&divided_.block, Divided::kCells * Divided::kCell);
        if (result != CUDA_SUCCESS) return result;
    }
    buffer.bytes = std::min(buffer.bytes, Divided::kCell);
    const std::uint32_t room = (Divided::kCell - buffer.bytes) / kAligned + 1;
    buffer.address = divided_.block + number / 2 * Divided::kCell + where % room * kAligned;
    return CUDA_SUCCESS;
}

void Machine::drop_divided() {
    if (divided_.block != 0) ok(CU(cuMemFree_v2)(divided_.block), "free");
    divided_.block = 0;
}

}  // namespace rnd
