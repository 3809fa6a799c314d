// Tensor maps: what is accepted, and that each thing said of the tensor is kept apart from the others.
#include <cstring>
#include <functional>
#include <set>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

struct Tiled {
    CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    cuuint32_t rank = 3;
    std::uint64_t address = 0x1000;
    cuuint64_t extents[5] = {64, 32, 16, 4, 2};
    cuuint64_t strides[4] = {256, 8192, 131072, 524288};
    cuuint32_t box[5] = {8, 4, 2, 1, 1};
    cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
    CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
    CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

    CUresult encode(CUtensorMap& map) const {
        return CU(cuTensorMapEncodeTiled)(&map, type, rank, reinterpret_cast<void*>(address), extents,
                                          strides, box, steps, interleave, swizzle, promotion, fill);
    }
};

using Change = std::function<void(Tiled&)>;

CUresult encode(const Change& change) {
    Tiled tiled;
    change(tiled);
    CUtensorMap map;
    return tiled.encode(map);
}

SIM_TEST("tensor map: different tensors have different maps, the address stands first", {}) {
    const Gpu gpu;
    const Change changes[] = {
        [](Tiled&) {},
        [](Tiled& t) { t.address = 0x2000; },
        [](Tiled& t) { t.type = CU_TENSOR_MAP_DATA_TYPE_INT32; },
        [](Tiled& t) { t.rank = 2; },
        [](Tiled& t) { t.extents[2] = 17; },
        [](Tiled& t) { t.strides[1] = 16384; },
        [](Tiled& t) { t.box[1] = 5; },
        [](Tiled& t) { t.steps[1] = 2; },
        [](Tiled& t) { t.swizzle = CU_TENSOR_MAP_SWIZZLE_64B; },
        [](Tiled& t) { t.promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B; },
        [](Tiled& t) { t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; },
        [](Tiled& t) {
            t.interleave = CU_TENSOR_MAP_INTERLEAVE_32B;
            t.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
        },
    };
    std::set<std::string> seen;
    for (const Change& change : changes) {
        Tiled tiled;
        change(tiled);
        CUtensorMap map;
        EXPECT(tiled.encode(map) == CUDA_SUCCESS);
        EXPECT(map.opaque[0] == tiled.address);
        seen.insert(std::string(reinterpret_cast<const char*>(&map), sizeof map));
    }
    EXPECT(seen.size() == std::size(changes));

    CUtensorMap first, second;
    EXPECT(Tiled{}.encode(first) == CUDA_SUCCESS);
    Tiled moved;
    moved.address = 0x7000;
    EXPECT(moved.encode(second) == CUDA_SUCCESS);
    OK(cuTensorMapReplaceAddress, &first, reinterpret_cast<void*>(0x7000));
    EXPECT(std::memcmp(&first, &second, sizeof first) == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress, &first, reinterpret_cast<void*>(0x7008));
}

SIM_TEST("tensor map: what the documentation forbids is refused", {}) {
    const Gpu gpu;
    const Change wrong[] = {
        [](Tiled& t) { t.address = 0x1008; },
        [](Tiled& t) { t.address = 0; },
        [](Tiled& t) { t.rank = 0; },
        [](Tiled& t) { t.rank = 6; },
        [](Tiled& t) { t.extents[1] = 0; },
        [](Tiled& t) { t.extents[1] = (1ull << 32) + 1; },
        [](Tiled& t) { t.strides[0] = 264; },
        [](Tiled& t) { t.strides[0] = 1ull << 40; },
        [](Tiled& t) { t.box[2] = 0; },
        [](Tiled& t) { t.box[2] = 257; },
        [](Tiled& t) { t.box[0] = 7; },  // no multiple of 16 bytes
        [](Tiled& t) { t.steps[1] = 9; },
        [](Tiled& t) { t.steps[2] = 0; },
        [](Tiled& t) { t.type = static_cast<CUtensorMapDataType>(99); },
        [](Tiled& t) { t.interleave = CU_TENSOR_MAP_INTERLEAVE_32B; },  // wants a swizzle of 32 bytes
        [](Tiled& t) {
            t.interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
            t.rank = 2;
        },
        [](Tiled& t) {
            t.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
            t.box[0] = 12;
        },
        [](Tiled& t) {
            t.type = CU_TENSOR_MAP_DATA_TYPE_INT32;
            t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
        },
        [](Tiled& t) {
            t.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B;
            t.extents[0] = 128;
        },
    };
    for (std::size_t i = 0; i < std::size(wrong); ++i) {
        if (encode(wrong[i]) != CUDA_ERROR_INVALID_VALUE)
            failed(__FILE__, __LINE__, "case " + std::to_string(i) + " is not refused");
    }
    alignas(128) unsigned char room[256];
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTensorMapReplaceAddress, reinterpret_cast<CUtensorMap*>(room + 8),
          reinterpret_cast<void*>(0x1000));
}

SIM_TEST("tensor map: boxes of pixels", {}) {
    const Gpu gpu;
    const Tiled t;
    const auto narrow = [&](cuuint32_t rank, int lower, int upper, cuuint32_t channels, cuuint32_t pixels) {
        const int low[3] = {lower, 0, 0}, high[3] = {upper, 0, 0};
        CUtensorMap map;
        return CU(cuTensorMapEncodeIm2col)(&map, t.type, rank, reinterpret_cast<void*>(t.address), t.extents,
                                           t.strides, low, high, channels, pixels, t.steps, t.interleave,
                                           t.swizzle, t.promotion, t.fill);
    };
    EXPECT(narrow(3, -32768, 32767, 64, 1024) == CUDA_SUCCESS);
    EXPECT(narrow(3, -32769, 0, 64, 64) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(narrow(4, -128, 127, 64, 64) == CUDA_SUCCESS);
    EXPECT(narrow(4, 0, 128, 64, 64) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(narrow(5, -16, 15, 64, 64) == CUDA_SUCCESS);
    EXPECT(narrow(5, -17, 0, 64, 64) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(narrow(2, 0, 0, 64, 64) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(narrow(3, 0, 0, 257, 64) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(narrow(3, 0, 0, 64, 1025) == CUDA_ERROR_INVALID_VALUE);
    const auto wide = [&](CUtensorMapSwizzle swizzle, CUtensorMapInterleave interleave) {
        CUtensorMap map;
        return CU(cuTensorMapEncodeIm2colWide)(
            &map, t.type, 4, reinterpret_cast<void*>(t.address), t.extents, t.strides, -1, 1, 16, 64, t.steps,
            interleave, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W, swizzle, t.promotion, t.fill);
    };
    EXPECT(wide(CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_INTERLEAVE_NONE) == CUDA_SUCCESS);
    EXPECT(wide(CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(wide(CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_INTERLEAVE_16B) == CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
