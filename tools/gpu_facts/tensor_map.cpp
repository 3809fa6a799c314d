// Fact 5: where a tensor map holds the address.
#include <fmt/format.h>

#include <cstring>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

CUtensorMap encode(Address address) {
    CUtensorMap map{};
    const cuuint64_t sizes[] = {256, 64};
    const cuuint64_t strides[] = {256 * sizeof(float)};
    const cuuint32_t box[] = {32, 8};
    const cuuint32_t element_strides[] = {1, 1};
    CU(cuTensorMapEncodeTiled, &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void*>(address),
       sizes, strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
       CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

}  // namespace

void tensor_map(const Card& card, Record& record) {
    const Block block(card, card.sized(2 * kMiB, 8), Place::Device);
    const Address second = block.address + 64 * 1024;
    const CUtensorMap a = encode(block.address), b = encode(second);
    std::string changed;
    for (unsigned i = 0; i < std::size(a.opaque); ++i) {
        if (a.opaque[i] != b.opaque[i]) changed += (changed.empty() ? "" : ", ") + std::to_string(i);
    }
    record.answer("word 0 is the address", a.opaque[0] == block.address && b.opaque[0] == second);
    record.text("64-bit words that differ between two addresses", changed);
    record.text("word 0", fmt::format("{:#x} for address {:#x}", a.opaque[0], block.address));
}

}  // namespace facts
