// Launches as they were before cuLaunchKernel, and batches of copies of boxes.
#include <algorithm>

#include "tests/simcuda/kernels.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

using namespace sim;

SIM_TEST("launch: prepared call by call", {}) {
    const Gpu gpu;
    const Kernels kernels;
    constexpr unsigned kWords = 1000;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kWords * 4);
    OK(cuMemsetD32, p, 41, kWords);
    const CUfunction increment = kernels["increment"];
    OK(cuFuncSetBlockShape, increment, 128, 1, 1);
    OK(cuFuncSetSharedSize, increment, 0);
    OK(cuParamSetSize, increment, 20);
    OK(cuParamSetv, increment, 0, &p, 8);
    OK(cuParamSetv, increment, 8, &p, 8);
    OK(cuParamSeti, increment, 16, kWords);
    OK(cuLaunchGrid, increment, 8, 1);
    OK(cuLaunchGridAsync, increment, 8, 1, CU_STREAM_PER_THREAD);
    OK(cuCtxSynchronize);
    std::vector<std::uint32_t> words(kWords);
    OK(cuMemcpyDtoH, words.data(), p, kWords * 4);
    EXPECT(words == std::vector<std::uint32_t>(kWords, 43));

    const CUfunction store = kernels["store"];
    OK(cuParamSetv, store, 0, &p, 8);
    OK(cuParamSetf, store, 8, 1.5f);
    OK(cuLaunch, store);
    OK(cuMemcpyDtoH, words.data(), p, 4);
    EXPECT(words[0] == 0x3FC00000);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetBlockShape, store, 0, 1, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSetSize, store, 1 << 20);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuParamSeti, store, -4, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchGrid, store, 0, 1);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunch, nullptr);
    OK(cuParamSetSize, store, 8);  // an argument short
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunch, store);
}

SIM_TEST("batch: boxes between pointers and arrays", {}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{10, 8, 4, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
    CUarray array = nullptr;
    OK(cuArray3DCreate, &array, &descriptor);
    const auto data = pattern(10 * 8 * 4 * 4, 1);
    CUdeviceptr memory = 0, copy = 0;
    OK(cuMemAlloc, &memory, data.size());
    OK(cuMemAlloc, &copy, data.size());
    OK(cuMemcpyHtoD, memory, data.data(), data.size());
    OK(cuCtxSynchronize);  // the stream waits for no other

    CUDA_MEMCPY3D_BATCH_OP ops[2] = {};
    // All of the memory into the array; and a box of bytes of it elsewhere, packed.
    ops[0].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[0].src.op.ptr = {memory, 10, 8, {}};
    ops[0].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    ops[0].dst.op.array = {array, {0, 0, 0}};
    ops[0].extent = {10, 8, 4};
    ops[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    ops[1].src.type = ops[1].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[1].src.op.ptr = {memory + 40, 40, 8, {}};
    ops[1].dst.op.ptr = {copy, 0, 0, {}};
    ops[1].extent = {7, 3, 2};
    ops[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    OK(cuMemcpy3DBatchAsync, 2, ops, 0, stream);
    OK(cuStreamSynchronize, stream);
    const auto packed = read_back(copy, 7 * 3 * 2);
    for (std::size_t z = 0; z < 2; ++z) {
        for (std::size_t y = 0; y < 3; ++y)
            EXPECT(std::equal(&packed[(z * 3 + y) * 7], &packed[(z * 3 + y) * 7] + 7,
                              &data[40 + (z * 8 + y) * 40]));
    }
    // Back out of the array, one element in.
    CUDA_MEMCPY3D_BATCH_OP back{};
    back.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    back.src.op.array = {array, {1, 2, 3}};
    back.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    back.dst.op.ptr = {copy, 0, 0, {}};
    back.extent = {9, 6, 1};
    back.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    OK(cuMemcpy3DBatchAsync, 1, &back, 0, stream);
    OK(cuStreamSynchronize, stream);
    const auto rows = read_back(copy, 9 * 6 * 4);
    for (std::size_t y = 0; y < 6; ++y)
        EXPECT(std::equal(&rows[y * 36], &rows[y * 36] + 36, &data[((3 * 8 + 2 + y) * 10 + 1) * 4]));

    FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpy3DBatchAsync, 1, &back, 0, nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync, 1, &back, 1, stream);
    back.extent.width = 10;  // beyond the array
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync, 1, &back, 0, stream);
    back.extent = {9, 0, 1};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync, 1, &back, 0, stream);
    back.extent = {9, 6, 1};
    back.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync, 1, &back, 0, stream);
    ops[1].dst.op.ptr.rowLength = 6;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync, 2, ops, 0, stream);
}

}  // namespace
