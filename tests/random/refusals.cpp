// Calls that the driver refuses, or that change nothing: what they answer is compared between runs, and that
// they change nothing with the buffers.
#include "tests/random/machine.h"

namespace rnd {

namespace {

using Call = CUresult (*)(const Buffer& buffer, CUdeviceptr nowhere, CUstream stream);

std::uint8_t some_bytes[256];

// Past the end of a buffer, and before its start.
const Call kOverruns[] = {
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemsetD8Async)(b.address + b.bytes - 8, 1, 64, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemsetD8Async)(b.address, 1, b.bytes + 1, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemcpyDtoDAsync_v2)(b.address + b.bytes / 2, b.address, b.bytes, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemcpyHtoDAsync_v2)(b.address + b.bytes - 4, some_bytes, sizeof some_bytes, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemcpyDtoHAsync_v2)(some_bytes, b.address + b.bytes - 4, sizeof some_bytes, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) { return CU(cuMemsetD8Async)(b.address - 4, 1, 12, s); },
};

// Copies to a buffer from where nothing can be copied.
const Call kMisuses[] = {
    // From where there is nothing.
    [](const Buffer& b, CUdeviceptr n, CUstream s) {
        return CU(cuMemcpyDtoDAsync_v2)(b.address, n, b.bytes, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemcpyDtoDAsync_v2)(b.address, 0, b.bytes, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemcpyHtoDAsync_v2)(b.address, nullptr, 4, s);
    },
    [](const Buffer& b, CUdeviceptr n, CUstream s) { return CU(cuMemcpyAsync)(b.address, n, b.bytes, s); },
    // Memory of another kind.
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemcpyDtoDAsync_v2)(b.address, reinterpret_cast<CUdeviceptr>(some_bytes), 16, s);
    },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = copy.dstDevice = b.address;
        copy.WidthInBytes = 64;
        copy.srcPitch = copy.dstPitch = 32;
        copy.Height = 2;
        return CU(cuMemcpy2DAsync_v2)(&copy, s);
    },
    [](const Buffer& b, CUdeviceptr n, CUstream s) {
        CUDA_MEMCPY2D copy{};
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = n;
        copy.dstDevice = b.address;
        copy.WidthInBytes = copy.srcPitch = copy.dstPitch = b.bytes;
        copy.Height = 1;
        return CU(cuMemcpy2DAsync_v2)(&copy, s);
    },
};

const Call kCalls[] = {
    // To where there is nothing.
    [](const Buffer& b, CUdeviceptr n, CUstream s) {
        return CU(cuMemcpyDtoDAsync_v2)(n, b.address, b.bytes, s);
    },
    // Not aligned.
    [](const Buffer& b, CUdeviceptr, CUstream s) { return CU(cuMemsetD32Async)(b.address + 2, 1, 1, s); },
    // Of nothing.
    [](const Buffer& b, CUdeviceptr, CUstream s) { return CU(cuMemsetD8Async)(b.address, 1, 0, s); },
    [](const Buffer& b, CUdeviceptr, CUstream s) {
        return CU(cuMemcpyDtoDAsync_v2)(b.address, b.address, 0, s);
    },
    // Not what was allocated.
    [](const Buffer& b, CUdeviceptr, CUstream) { return CU(cuMemFree_v2)(b.address + 4); },
    [](const Buffer& b, CUdeviceptr, CUstream s) { return CU(cuMemFreeAsync)(b.address + 4, s); },
    [](const Buffer&, CUdeviceptr n, CUstream) { return CU(cuMemFree_v2)(n); },
    [](const Buffer&, CUdeviceptr n, CUstream s) { return CU(cuMemFreeAsync)(n, s); },
    [](const Buffer&, CUdeviceptr, CUstream) { return CU(cuMemFree_v2)(0); },
    // Too much and too little.
    [](const Buffer&, CUdeviceptr, CUstream) {
        CUdeviceptr pointer = 0;
        return CU(cuMemAlloc_v2)(&pointer, 0);
    },
    [](const Buffer&, CUdeviceptr, CUstream) {
        CUdeviceptr pointer = 0;
        return CU(cuMemAlloc_v2)(&pointer, std::size_t{1} << 50);
    },
    [](const Buffer&, CUdeviceptr, CUstream s) {
        CUdeviceptr pointer = 0;
        return CU(cuMemAllocAsync)(&pointer, std::size_t{1} << 50, s);
    },
    [](const Buffer&, CUdeviceptr, CUstream) { return CU(cuMemAlloc_v2)(nullptr, 1 << 16); },
    // What it is asked about itself.
    [](const Buffer& b, CUdeviceptr, CUstream) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        const CUresult result = CU(cuMemGetAddressRange_v2)(&base, &bytes, b.address + b.bytes / 2);
        return result == CUDA_SUCCESS && (base != b.address || bytes != b.bytes) ? CUDA_ERROR_UNKNOWN
                                                                                 : result;
    },
    [](const Buffer& b, CUdeviceptr, CUstream) {
        CUdeviceptr base = 0;
        return CU(cuPointerGetAttribute)(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                         b.address + b.bytes - 1) == CUDA_SUCCESS &&
                       base != b.address
                   ? CUDA_ERROR_UNKNOWN
                   : CUDA_SUCCESS;
    },
    [](const Buffer& b, CUdeviceptr, CUstream) {
        unsigned type = 0;
        const CUresult result = CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, b.address);
        return result == CUDA_SUCCESS ? static_cast<CUresult>(1000 + type) : result;
    },
    [](const Buffer& b, CUdeviceptr, CUstream) {
        unsigned managed = 0;
        const CUresult result =
            CU(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, b.address);
        return result == CUDA_SUCCESS ? static_cast<CUresult>(1000 + managed) : result;
    },
    [](const Buffer&, CUdeviceptr n, CUstream) { return CU(cuMemGetAddressRange_v2)(nullptr, nullptr, n); },
};

// Launches that cannot be.
CUresult bad_launch(CUfunction function, unsigned which, const Buffer& buffer, CUstream stream) {
    CUdeviceptr to = buffer.address;
    std::uint32_t counts[] = {0, 1, 1};
    void* arguments[] = {&to, &counts[0], &counts[1], &counts[2]};
    switch (which) {
        case 0:
            return CU(cuLaunchKernel)(function, 0, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr);
        case 1:
            return CU(cuLaunchKernel)(function, 1, 1, 1, 4096, 1, 1, 0, stream, arguments, nullptr);
        default:
            return CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 16 << 20, stream, arguments, nullptr);
    }
}

}  // namespace

std::uint32_t Machine::refuse(Hand& hand, const Op& op) {
    const std::uint32_t number = op.a[1] % kBuffers;
    const unsigned slot = slot_of(hand, op.a[0]);
    const Buffer& buffer = buffers_[number];
    const UseList uses = {{number, Mode::Read}};
    // A capture may be spoilt by what is refused; the legacy stream must not be used beside some.
    if (!may_use(hand, uses) || !buffer.alive() || buffer.of_host() || !usable(hand, slot)) return 0;
    // What lies past the end of what the program maps or divides is the program's affair.
    if (buffer.kind >= Own) return 0;
    if (buffer.device != device_of(slot) || forbidden(hand) || !prepare(hand, op, slot, uses)) return 0;
    const CUstream stream = stream_of(slot);
    open_gates();
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (op.verb == Verb::overrun) {
        return 1 + static_cast<std::uint32_t>(
                       kOverruns[op.a[2] % std::size(kOverruns)](buffer, nowhere_, stream));
    }
    if (op.verb == Verb::misuse) {
        return 1 +
               static_cast<std::uint32_t>(kMisuses[op.a[2] % std::size(kMisuses)](buffer, nowhere_, stream));
    }
    const unsigned which = op.a[2] % (std::size(kCalls) + 3);
    const CUresult result = which < std::size(kCalls)
                                ? kCalls[which](buffer, nowhere_, stream)
                                : bad_launch(devices_[device_of(slot)].functions.at("add"),
                                             which - std::size(kCalls), buffer, stream);
    return 1 + static_cast<std::uint32_t>(result);
}

}  // namespace rnd
