// Tensor maps: a kernel that is given one reaches the buffer it was encoded for. The overlay's maps do not
// show the address in their bytes.
#include <cstring>

#include "tests/entry/own.h"

using namespace rig;

namespace {

using Encode = CUresult (*)(CUtensorMap* map, CUdeviceptr address);

void* pointer(CUdeviceptr address) {
    return reinterpret_cast<void*>(address);
}

CUresult encode_tiled(CUtensorMap* map, CUdeviceptr address) {
    return CU(cuTensorMapEncodeTiled)(map, {}, 1, pointer(address), nullptr, nullptr, nullptr, nullptr, {},
                                      {}, {}, {});
}

CUresult encode_im2col(CUtensorMap* map, CUdeviceptr address) {
    return CU(cuTensorMapEncodeIm2col)(map, {}, 3, pointer(address), nullptr, nullptr, nullptr, nullptr, 0, 0,
                                       nullptr, {}, {}, {}, {});
}

CUresult encode_im2col_wide(CUtensorMap* map, CUdeviceptr address) {
    return CU(cuTensorMapEncodeIm2colWide)(map, {}, 3, pointer(address), nullptr, nullptr, 0, 0, 0, 0,
                                           nullptr, {}, {}, {}, {}, {});
}

CUresult replace(CUtensorMap* map, CUdeviceptr address) {
    return CU(cuTensorMapReplaceAddress)(map, pointer(address));
}

CUresult encode_and_set_class(CUtensorMap* map, CUdeviceptr address) {
    const CUresult status = encode_tiled(map, address);
    return status == CUDA_SUCCESS ? CU(cuTensorMapSetAllocationClass)(map, {}, nullptr) : status;
}

}  // namespace

OVERLAY_TEST("tensor maps: a kernel finds the buffer behind its map, also with the bit that Triton clears",
             "tensor-maps") {
    const Gpu gpu;
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    unsigned k = 0;
    std::vector<std::unique_ptr<Buffer>> buffers;  // each map is for another one
    for (const Encode encode :
         {encode_tiled, encode_im2col, encode_im2col_wide, replace, encode_and_set_class}) {
        buffers.push_back(std::make_unique<Buffer>(kBuffer, 1));
        const Buffer& in = *buffers.back();
        for (const bool edited : {false, true}) {
            CUtensorMap map{};
            EXPECT(encode(&map, in.at()) == CUDA_SUCCESS);
            if (edited) map.opaque[1] &= ~(1ull << 21);
            crowd.evict(in);
            ++k;
            const unsigned words = kBuffer / 4;
            EXPECT(launch("add_through", words, nullptr, out.at(), map, k, words) == CUDA_SUCCESS);
            OK(cuCtxSynchronize);
            EXPECT(in.resident());
            auto expected = pattern(kBuffer, 1);
            for (std::size_t i = 0; i < kBuffer; i += 4) {
                std::uint32_t word;
                std::memcpy(&word, &expected[i], 4);
                word += k;
                std::memcpy(&expected[i], &word, 4);
            }
            EXPECT(out.read() == expected);
        }
    }
}

OVERLAY_TEST("tensor maps: one for a buffer that was freed names nothing") {
    const Gpu gpu;
    CUtensorMap map{};
    {
        const Buffer freed(kBuffer, 1);
        EXPECT(encode_tiled(&map, freed.at()) == CUDA_SUCCESS);
    }
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.press();
    const unsigned words = 0;
    EXPECT(launch("add_through", 1, nullptr, out.at(), map, 1u, words) == CUDA_SUCCESS);
    OK(cuCtxSynchronize);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTensorMapEncodeTiled, &map, {}, 1, pointer(out.at(1)), nullptr, nullptr,
          nullptr, nullptr, {}, {}, {}, {});
}

OVERLAY_TEST("tensor maps: one that could not be made anew is still for its buffer", "tensor-map-refused") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    const Buffer other(kBuffer, 3);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    CUtensorMap map{};
    EXPECT(encode_tiled(&map, in.at()) == CUDA_SUCCESS);
    for (const Encode encode : {encode_tiled, encode_im2col, encode_im2col_wide, replace})
        EXPECT(encode(&map, other.at(1)) == CUDA_ERROR_INVALID_VALUE);
    for (const Buffer* buffer : {&in, &other}) crowd.evict(*buffer);
    const unsigned words = kBuffer / 4;
    EXPECT(launch("add_through", words, nullptr, out.at(), map, 0u, words) == CUDA_SUCCESS);
    OK(cuCtxSynchronize);
    EXPECT(in.resident());
    EXPECT(other.evicted());
    EXPECT(out.read() == pattern(kBuffer, 1));
}

OVERLAY_TEST("tensor maps: one for addresses at which nothing is mapped yet") {
    const Gpu gpu;
    const Buffer out(kBuffer, 2);
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve, &address, kBuffer, 0, 0, 0);
    CUtensorMap map{};
    EXPECT(encode_tiled(&map, address) == CUDA_SUCCESS);
    rig::map(address, kBuffer, create(kBuffer));
    write(address, kBuffer, 1);
    Crowd crowd;
    evict(crowd, address, kBuffer);
    const unsigned words = kBuffer / 4;
    EXPECT(launch("add_through", words, nullptr, out.at(), map, 0u, words) == CUDA_SUCCESS);
    OK(cuCtxSynchronize);
    EXPECT(on_device(address, kBuffer));
    EXPECT(out.holds(1));
}
