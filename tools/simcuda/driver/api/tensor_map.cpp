// cuTensorMap*: descriptors for bulk copies of tensors. What they describe is checked as documented and kept
// in the opaque words in a form of this driver's own: the address first. Instructions that would use one are
// not simulated.
#include <algorithm>
#include <bit>
#include <iterator>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"

namespace simcuda::driver {
namespace {

constexpr unsigned kMostDimensions = 5;

// What all forms say of the tensor and of the shared memory it is copied to.
struct Tensor {
    CUtensorMapDataType type;
    cuuint32_t rank;
    void* address;
    const cuuint64_t* extents;
    const cuuint64_t* strides;  // bytes; of all dimensions but the first
    const cuuint32_t* steps;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
    CUtensorMapL2promotion promotion;
    CUtensorMapFloatOOBfill fill;
};

// The opaque words.
struct Content {
    std::uint64_t address;
    std::uint64_t layout;  // a byte each: form, type, rank, interleave, swizzle, promotion, fill
    std::uint32_t extents[kMostDimensions];  // less one
    std::uint32_t steps[kMostDimensions];
    std::uint64_t strides[kMostDimensions - 1];
    std::uint32_t box[kMostDimensions];  // tiled; else corners, channels and pixels
    std::uint32_t unused[5];
};
static_assert(sizeof(Content) == sizeof(CUtensorMap));

enum class Form : std::uint8_t { Tiled, Im2col, Im2colWide };

bool in_halves(CUtensorMapDataType type) {  // 16 values of 4 or 6 bits, on 16 bytes
    return type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B || type == CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
}

bool is_packed(CUtensorMapDataType type) {
    return in_halves(type) || type == CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
}

bool is_float(CUtensorMapDataType type) {
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
}

std::uint64_t element_bits(CUtensorMapDataType type) {
    switch (type) {
        case CU_TENSOR_MAP_DATA_TYPE_UINT8:
            return 8;
        case CU_TENSOR_MAP_DATA_TYPE_UINT16:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
        case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
            return 16;
        case CU_TENSOR_MAP_DATA_TYPE_UINT64:
        case CU_TENSOR_MAP_DATA_TYPE_INT64:
        case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
            return 64;
        case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B:
            return 4;
        case CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B:
        case CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B:
            return 8;  // in shared memory, gaps included
        default:
            return 32;
    }
}

std::uint64_t address_alignment(CUtensorMapDataType type, CUtensorMapInterleave interleave) {
    return interleave == CU_TENSOR_MAP_INTERLEAVE_32B || in_halves(type) ? 32 : 16;
}

void check(const CUtensorMap* map, const Tensor& t) {
    require(map != nullptr && reinterpret_cast<std::uintptr_t>(map) % 64 == 0, CUDA_ERROR_INVALID_VALUE);
    require(t.type >= CU_TENSOR_MAP_DATA_TYPE_UINT8 && t.type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B &&
                t.interleave >= CU_TENSOR_MAP_INTERLEAVE_NONE &&
                t.interleave <= CU_TENSOR_MAP_INTERLEAVE_32B && t.swizzle >= CU_TENSOR_MAP_SWIZZLE_NONE &&
                t.swizzle <= CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B &&
                t.promotion >= CU_TENSOR_MAP_L2_PROMOTION_NONE &&
                t.promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
                t.fill >= CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE &&
                t.fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
            CUDA_ERROR_INVALID_VALUE);
    const bool interleaved = t.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
    require(t.rank >= (interleaved ? 3u : 1u) && t.rank <= kMostDimensions, CUDA_ERROR_INVALID_VALUE);
    require(t.extents != nullptr && t.steps != nullptr && (t.strides != nullptr || t.rank == 1),
            CUDA_ERROR_INVALID_VALUE);
    const std::uint64_t alignment = address_alignment(t.type, t.interleave);
    const auto address = reinterpret_cast<std::uintptr_t>(t.address);
    require(address != 0 && address % alignment == 0, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < t.rank; ++i) {
        require(t.extents[i] != 0 && t.extents[i] <= std::uint64_t{1} << 32, CUDA_ERROR_INVALID_VALUE);
        const bool ignored = i == 0 && !interleaved;
        require(ignored || (t.steps[i] != 0 && t.steps[i] <= 8), CUDA_ERROR_INVALID_VALUE);
        require(i == 0 || (t.strides[i - 1] % alignment == 0 && t.strides[i - 1] < std::uint64_t{1} << 40),
                CUDA_ERROR_INVALID_VALUE);
    }
    require(!in_halves(t.type) || t.extents[0] % 128 == 0, CUDA_ERROR_INVALID_VALUE);
    require(t.type != CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B || t.extents[0] % 2 == 0,
            CUDA_ERROR_INVALID_VALUE);
    require(t.type != CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B || !interleaved, CUDA_ERROR_INVALID_VALUE);
    require(t.interleave != CU_TENSOR_MAP_INTERLEAVE_32B || t.swizzle == CU_TENSOR_MAP_SWIZZLE_32B,
            CUDA_ERROR_INVALID_VALUE);
    require(!in_halves(t.type) ||
                (t.swizzle != CU_TENSOR_MAP_SWIZZLE_32B && t.swizzle != CU_TENSOR_MAP_SWIZZLE_64B &&
                 t.swizzle != CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B),
            CUDA_ERROR_INVALID_VALUE);
    require(t.fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || (is_float(t.type) && !is_packed(t.type)),
            CUDA_ERROR_INVALID_VALUE);
}

// The row of shared memory that is swizzled must hold `elements` of the first dimension.
void check_row(const Tensor& t, std::uint64_t elements) {
    if (t.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || t.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE) return;
    const std::uint64_t bytes = elements * element_bits(t.type) / 8;
    const std::uint64_t most = t.swizzle == CU_TENSOR_MAP_SWIZZLE_32B   ? 32
                               : t.swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                                                                        : 128;
    require(bytes <= most, CUDA_ERROR_INVALID_VALUE);
}

Content content_of(Form form, const Tensor& t) {
    Content content{};
    content.address = reinterpret_cast<std::uint64_t>(t.address);
    const unsigned bytes[] = {static_cast<unsigned>(form),         t.type,    t.rank,
                              static_cast<unsigned>(t.interleave), t.swizzle, t.promotion,
                              static_cast<unsigned>(t.fill)};
    for (std::size_t i = 0; i < std::size(bytes); ++i) content.layout |= std::uint64_t{bytes[i]} << 8 * i;
    for (unsigned i = 0; i < t.rank; ++i) {
        content.extents[i] = static_cast<std::uint32_t>(t.extents[i] - 1);
        content.steps[i] = t.steps[i];
        if (i != 0) content.strides[i - 1] = t.strides[i - 1];
    }
    return content;
}

CUresult encode_pixels(Context&, CUtensorMap* map, Form form, const Tensor& t, cuuint32_t channels,
                       cuuint32_t pixels, const std::uint32_t (&corners)[2]) {
    check(map, t);
    require(t.rank >= 3 && channels != 0 && channels <= 256 && pixels != 0 && pixels <= 1024,
            CUDA_ERROR_INVALID_VALUE);
    require(!in_halves(t.type) || channels == 128, CUDA_ERROR_INVALID_VALUE);
    check_row(t, channels);
    Content content = content_of(form, t);
    content.box[0] = channels;
    content.box[1] = pixels;
    std::copy_n(corners, 2, content.box + 2);
    *map = std::bit_cast<CUtensorMap>(content);
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_API cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                   const cuuint64_t* extents, const cuuint64_t* strides,
                                   const cuuint32_t* box, const cuuint32_t* steps,
                                   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                   CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    return call(Entry::cuTensorMapEncodeTiled, [&](Context&) {
        const Tensor t{type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill};
        check(map, t);
        require(
            box != nullptr && std::all_of(box, box + rank, [](cuuint32_t n) { return n != 0 && n <= 256; }),
            CUDA_ERROR_INVALID_VALUE);
        require(interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || box[0] * element_bits(type) % 128 == 0,
                CUDA_ERROR_INVALID_VALUE);
        require(!in_halves(type) || box[0] == 128, CUDA_ERROR_INVALID_VALUE);
        check_row(t, box[0]);
        Content content = content_of(Form::Tiled, t);
        std::copy_n(box, rank, content.box);
        *map = std::bit_cast<CUtensorMap>(content);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                    void* address, const cuuint64_t* extents, const cuuint64_t* strides,
                                    const int* lower, const int* upper, cuuint32_t channels,
                                    cuuint32_t pixels, const cuuint32_t* steps,
                                    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    return call(Entry::cuTensorMapEncodeIm2col, [&](Context& context) {
        require(lower != nullptr && upper != nullptr && rank >= 3 && rank <= kMostDimensions,
                CUDA_ERROR_INVALID_VALUE);
        // Offsets of the box, one for each dimension but the first and the last; the more, the less room for
        // each.
        const int limit = rank == 3 ? 32768 : rank == 4 ? 128 : 16;
        const unsigned bits = rank == 3 ? 16 : rank == 4 ? 8 : 5;
        std::uint32_t corners[2] = {};
        for (unsigned i = 0; i + 2 < rank; ++i) {
            for (const int* corner : {lower, upper})
                require(corner[i] >= -limit && corner[i] < limit, CUDA_ERROR_INVALID_VALUE);
            const std::uint32_t mask = (1u << bits) - 1;
            corners[0] |= (static_cast<std::uint32_t>(lower[i]) & mask) << bits * i;
            corners[1] |= (static_cast<std::uint32_t>(upper[i]) & mask) << bits * i;
        }
        return encode_pixels(
            context, map, Form::Im2col,
            {type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill}, channels,
            pixels, corners);
    });
}

SIMCUDA_API cuTensorMapEncodeIm2colWide(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                        void* address, const cuuint64_t* extents, const cuuint64_t* strides,
                                        int lower, int upper, cuuint32_t channels, cuuint32_t pixels,
                                        const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                        CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle,
                                        CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    return call(Entry::cuTensorMapEncodeIm2colWide, [&](Context& context) {
        constexpr int kLimit = 32768;
        require(lower >= -kLimit && lower < kLimit && upper >= -kLimit && upper < kLimit,
                CUDA_ERROR_INVALID_VALUE);
        require(mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W || mode == CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128,
                CUDA_ERROR_INVALID_VALUE);
        require(interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                    (swizzle == CU_TENSOR_MAP_SWIZZLE_64B || swizzle == CU_TENSOR_MAP_SWIZZLE_128B ||
                     swizzle == CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B),
                CUDA_ERROR_INVALID_VALUE);
        const std::uint32_t corners[2] = {
            (static_cast<std::uint32_t>(lower) & 0xFFFF) | static_cast<std::uint32_t>(upper) << 16,
            static_cast<std::uint32_t>(mode)};
        return encode_pixels(
            context, map, Form::Im2colWide,
            {type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill}, channels,
            pixels, corners);
    });
}

SIMCUDA_API cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    return call(Entry::cuTensorMapReplaceAddress, [&](Context&) {
        require(map != nullptr && reinterpret_cast<std::uintptr_t>(map) % 64 == 0, CUDA_ERROR_INVALID_VALUE);
        auto content = std::bit_cast<Content>(*map);
        const auto type = static_cast<CUtensorMapDataType>(content.layout >> 8 & 0xFF);
        const auto interleave = static_cast<CUtensorMapInterleave>(content.layout >> 24 & 0xFF);
        const auto number = reinterpret_cast<std::uint64_t>(address);
        require(number != 0 && number % address_alignment(type, interleave) == 0, CUDA_ERROR_INVALID_VALUE);
        content.address = number;
        *map = std::bit_cast<CUtensorMap>(content);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
