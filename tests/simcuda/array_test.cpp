// CUDA arrays: what may be made, what copies move, and what is refused.
#include <algorithm>
#include <cstring>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

CUarray array_of(std::size_t width, std::size_t height, std::size_t depth, CUarray_format format,
                 unsigned channels, unsigned flags = 0) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{width, height, depth, format, channels, flags};
    CUarray array = nullptr;
    OK(cuArray3DCreate, &array, &descriptor);
    return array;
}

CUresult create_array(std::size_t width, std::size_t height, std::size_t depth, unsigned flags = 0,
                      unsigned channels = 1, CUarray_format format = CU_AD_FORMAT_FLOAT) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{width, height, depth, format, channels, flags};
    CUarray array = nullptr;
    const CUresult result = CU(cuArray3DCreate)(&array, &descriptor);
    if (result == CUDA_SUCCESS) OK(cuArrayDestroy, array);
    return result;
}

// A box of bytes of an array, to or from packed host memory.
struct Box {
    std::size_t x, y, z, width, height, depth;
    std::size_t bytes() const { return width * height * depth; }
};

CUDA_MEMCPY3D copy_of(const Box& box) {
    CUDA_MEMCPY3D copy{};
    copy.WidthInBytes = box.width;
    copy.Height = box.height;
    copy.Depth = box.depth;
    return copy;
}

CUDA_MEMCPY3D to_array(CUarray array, const Box& box, const void* host) {
    CUDA_MEMCPY3D copy = copy_of(box);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.dstXInBytes = box.x;
    copy.dstY = box.y;
    copy.dstZ = box.z;
    return copy;
}

CUDA_MEMCPY3D from_array(void* host, CUarray array, const Box& box) {
    CUDA_MEMCPY3D copy = copy_of(box);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.srcXInBytes = box.x;
    copy.srcY = box.y;
    copy.srcZ = box.z;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = host;
    return copy;
}

void write(CUarray array, const Box& box, const std::vector<std::uint8_t>& data) {
    const CUDA_MEMCPY3D copy = to_array(array, box, data.data());
    OK(cuMemcpy3D, &copy);
}

std::vector<std::uint8_t> read(CUarray array, const Box& box) {
    std::vector<std::uint8_t> data(box.bytes());
    const CUDA_MEMCPY3D copy = from_array(data.data(), array, box);
    OK(cuMemcpy3D, &copy);
    return data;
}

SIM_TEST("array: a box written into a volume is read back, and nothing else changes", {}) {
    const Gpu gpu;
    const CUarray array = array_of(50, 20, 10, CU_AD_FORMAT_UNSIGNED_INT16, 2);  // rows of 200 bytes
    const Box whole{0, 0, 0, 200, 20, 10}, part{8, 3, 2, 100, 11, 5};
    auto expected = pattern(whole.bytes(), 1);
    const auto inner = pattern(part.bytes(), 2);
    write(array, whole, expected);
    write(array, part, inner);
    for (std::size_t z = 0; z < part.depth; ++z) {
        for (std::size_t y = 0; y < part.height; ++y) {
            std::copy_n(&inner[(z * part.height + y) * part.width], part.width,
                        &expected[((part.z + z) * whole.height + part.y + y) * whole.width + part.x]);
        }
    }
    EXPECT(read(array, whole) == expected);
    EXPECT(read(array, part) == inner);

    // To another array, and to pitched device memory.
    const CUarray other = array_of(60, 30, 12, CU_AD_FORMAT_FLOAT, 1);  // elements of the same size
    const Box elsewhere{40, 5, 1, 100, 11, 5};
    CUDA_MEMCPY3D copy = copy_of(part);
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.srcXInBytes = part.x;
    copy.srcY = part.y;
    copy.srcZ = part.z;
    copy.dstArray = other;
    copy.dstXInBytes = elsewhere.x;
    copy.dstY = elsewhere.y;
    copy.dstZ = elsewhere.z;
    OK(cuMemcpy3D, &copy);
    EXPECT(read(other, elsewhere) == inner);

    CUdeviceptr memory = 0;
    OK(cuMemAlloc, &memory, part.bytes());
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstXInBytes = copy.dstY = copy.dstZ = 0;
    copy.dstPitch = part.width;
    copy.dstHeight = part.height;
    OK(cuMemcpy3DAsync, &copy, nullptr);
    EXPECT(read_back(memory, part.bytes()) == inner);
}

SIM_TEST("array: rows of two dimensions, as cuMemcpy2D copies them", {}) {
    const Gpu gpu;
    const CUDA_ARRAY_DESCRIPTOR descriptor{30, 7, CU_AD_FORMAT_UNSIGNED_INT8, 4};
    CUarray array = nullptr;
    OK(cuArrayCreate, &array, &descriptor);
    const auto data = pattern(120 * 7, 3);
    CUDA_MEMCPY2D in{};
    in.srcMemoryType = CU_MEMORYTYPE_HOST;
    in.srcHost = data.data();
    in.srcPitch = 120;
    in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    in.dstArray = array;
    in.WidthInBytes = 120;
    in.Height = 7;
    OK(cuMemcpy2D, &in);
    std::vector<std::uint8_t> out(100 * 3, 0);
    CUDA_MEMCPY2D back{};
    back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    back.srcArray = array;
    back.srcXInBytes = 20;
    back.srcY = 4;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = out.data();
    back.dstPitch = 100;
    back.WidthInBytes = 100;
    back.Height = 3;
    OK(cuMemcpy2DAsync, &back, nullptr);
    OK(cuCtxSynchronize);
    for (std::size_t y = 0; y < 3; ++y)
        EXPECT(std::equal(&out[y * 100], &out[y * 100] + 100, &data[(y + 4) * 120 + 20]));
    back.srcXInBytes = 21;  // not the start of an element
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D, &back);
    back.srcXInBytes = 24;  // beyond the row's end
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D, &back);
    back.srcXInBytes = 0;
    back.srcY = 5;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D, &back);
}

SIM_TEST("array: linear copies of one dimension", {}) {
    const Gpu gpu;
    const CUarray a = array_of(1000, 0, 0, CU_AD_FORMAT_FLOAT, 1),
                  b = array_of(2000, 0, 0, CU_AD_FORMAT_FLOAT, 1);
    const auto data = pattern(4000, 4);
    OK(cuMemcpyHtoA, a, 0, data.data(), 4000);
    OK(cuMemcpyAtoA, b, 4000, a, 0, 4000);
    CUdeviceptr memory = 0;
    OK(cuMemAlloc, &memory, 4000);
    OK(cuMemcpyAtoD, memory, b, 4000, 4000);
    EXPECT(read_back(memory, 4000) == data);
    OK(cuMemcpyDtoA, b, 8, memory, 400);
    std::vector<std::uint8_t> out(400);
    OK(cuMemcpyAtoH, out.data(), b, 8, 400);
    EXPECT(std::equal(out.begin(), out.end(), data.begin()));
    void* pinned = nullptr;
    OK(cuMemHostAlloc, &pinned, 4000, 0);
    OK(cuMemcpyHtoAAsync, a, 0, data.data(), 4000, nullptr);
    OK(cuMemcpyAtoHAsync, pinned, a, 0, 4000, nullptr);
    OK(cuCtxSynchronize);
    EXPECT(std::memcmp(pinned, data.data(), 4000) == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA, a, 4, data.data(), 4000);  // over its end
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA, a, 2, data.data(), 4);     // inside an element
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoA, a, 0, b, 0, 6);
    const CUarray bytes = array_of(1000, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoA, a, 0, bytes, 0, 400);
    const CUarray plane = array_of(10, 10, 0, CU_AD_FORMAT_FLOAT, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA, plane, 0, data.data(), 4);
}

SIM_TEST("array: only shapes that exist", {}) {
    const Gpu gpu;
    EXPECT(create_array(10, 0, 0) == CUDA_SUCCESS);
    EXPECT(create_array(10, 10, 10) == CUDA_SUCCESS);
    EXPECT(create_array(0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 0, 10) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 0, 10, CUDA_ARRAY3D_LAYERED) == CUDA_SUCCESS);
    EXPECT(create_array(10, 10, 0, CUDA_ARRAY3D_LAYERED) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 3000, CUDA_ARRAY3D_LAYERED) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 6, CUDA_ARRAY3D_CUBEMAP) == CUDA_SUCCESS);
    EXPECT(create_array(10, 11, 6, CUDA_ARRAY3D_CUBEMAP) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 12, CUDA_ARRAY3D_CUBEMAP) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED) == CUDA_SUCCESS);
    EXPECT(create_array(10, 10, 13, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 0, CUDA_ARRAY3D_TEXTURE_GATHER) == CUDA_SUCCESS);
    EXPECT(create_array(10, 0, 0, CUDA_ARRAY3D_TEXTURE_GATHER) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 0, CUDA_ARRAY3D_SPARSE) == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(create_array(10, 10, 0, 0x1000) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 0, 0, 3) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 0, 0, 1, static_cast<CUarray_format>(0x33)) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(10, 10, 0, 0, 1, CU_AD_FORMAT_NV12) == CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(create_array(131073, 0, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(create_array(131072, 65536, 0) == CUDA_ERROR_OUT_OF_MEMORY);
}

SIM_TEST("array: tells what it is, takes memory and gives it back", {}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    const CUarray array = array_of(256, 256, 4, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_LAYERED);
    EXPECT(before - free_bytes() >= 256 * 256 * 4 * 8);
    CUDA_ARRAY3D_DESCRIPTOR full{};
    OK(cuArray3DGetDescriptor, &full, array);
    EXPECT(full.Width == 256 && full.Height == 256 && full.Depth == 4);
    EXPECT(full.Format == CU_AD_FORMAT_HALF && full.NumChannels == 4 && full.Flags == CUDA_ARRAY3D_LAYERED);
    CUDA_ARRAY_DESCRIPTOR flat{};
    OK(cuArrayGetDescriptor, &flat, array);
    EXPECT(flat.Width == 256 && flat.Height == 256 && flat.Format == CU_AD_FORMAT_HALF &&
           flat.NumChannels == 4);
    OK(cuArrayDestroy, array);
    EXPECT(free_bytes() == before);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, array);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor, &flat, array);
    std::uint8_t byte = 0;
    const CUDA_MEMCPY3D copy = to_array(array, {0, 0, 0, 1, 1, 1}, &byte);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3D, &copy);
}

SIM_TEST("array: goes with its context", {}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    CUcontext context = nullptr;
    OK(cuCtxCreate, &context, nullptr, 0, gpu.device);
    const CUarray array = array_of(1000, 1000, 0, CU_AD_FORMAT_FLOAT, 1);
    OK(cuCtxDestroy, context);
    OK(cuCtxSetCurrent, gpu.context);
    EXPECT(free_bytes() == before);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, array);
}

SIM_TEST("array: the levels of a mipmapped one", {}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{40, 10, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUmipmappedArray mipmapped = nullptr;
    OK(cuMipmappedArrayCreate, &mipmapped, &descriptor, 100);  // no more than there can be
    const std::size_t widths[] = {40, 20, 10, 5, 2, 1}, heights[] = {10, 5, 2, 1, 1, 1};
    CUarray level = nullptr, first = nullptr;
    for (unsigned i = 0; i < 6; ++i) {
        OK(cuMipmappedArrayGetLevel, &level, mipmapped, i);
        if (i == 0) first = level;
        CUDA_ARRAY_DESCRIPTOR found{};
        OK(cuArrayGetDescriptor, &found, level);
        EXPECT(found.Width == widths[i] && found.Height == heights[i]);
        const Box whole{0, 0, 0, widths[i] * 4, heights[i], 1};
        write(level, whole, pattern(whole.bytes(), i));
    }
    for (unsigned i = 0; i < 6; ++i) {
        OK(cuMipmappedArrayGetLevel, &level, mipmapped, i);
        const Box whole{0, 0, 0, widths[i] * 4, heights[i], 1};
        EXPECT(read(level, whole) == pattern(whole.bytes(), i));
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel, &level, mipmapped, 6);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, first);
    OK(cuMipmappedArrayDestroy, mipmapped);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy, mipmapped);
    CUDA_ARRAY_DESCRIPTOR found{};
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayGetDescriptor, &found, first);
    EXPECT(free_bytes() == before);
}

SIM_TEST("array: a captured copy keeps its arrays and places", {}) {
    const Gpu gpu;
    const CUarray array = array_of(16, 8, 3, CU_AD_FORMAT_UNSIGNED_INT32, 1);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const Box part{8, 2, 1, 40, 5, 2};
    void* pinned = nullptr;
    OK(cuMemHostAlloc, &pinned, part.bytes(), 0);
    const CUDA_MEMCPY3D copy = to_array(array, part, pinned);
    OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemcpy3DAsync, &copy, stream);
    CUgraph graph = nullptr;
    OK(cuStreamEndCapture, stream, &graph);
    CUgraphNode node = nullptr;
    std::size_t count = 1;
    OK(cuGraphGetNodes, graph, &node, &count);
    CUDA_MEMCPY3D held{};
    OK(cuGraphMemcpyNodeGetParams, node, &held);
    EXPECT(held.dstMemoryType == CU_MEMORYTYPE_ARRAY && held.dstArray == array);
    EXPECT(held.dstXInBytes == 8 && held.dstY == 2 && held.dstZ == 1);
    const auto data = pattern(part.bytes(), 7);
    std::memcpy(pinned, data.data(), data.size());
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiate, &exec, graph, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(read(array, part) == data);
}

}  // namespace
