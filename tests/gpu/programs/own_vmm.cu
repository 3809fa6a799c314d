// A program with virtual memory management of its own, as PyTorch's expandable segments have: one reserved
// range that grows by a mapping at a time, shrinks and grows again, used together with buffers of cudaMalloc.
#include <cuda.h>

#include "tests/apps/check.h"
#include "tests/gpu/programs/digest.h"

#define DRIVER(call)                                                                                         \
    do {                                                                                                     \
        CUresult driver_result = (call);                                                                     \
        if (driver_result != CUDA_SUCCESS) FAIL("line %d: %s: CUresult %d", __LINE__, #call, driver_result); \
    } while (0)

__global__ void fill(unsigned* to, std::size_t count, unsigned seed) {
    std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) to[i] = noise(i, seed);
}

__global__ void add(unsigned* to, const unsigned* from, std::size_t count) {
    std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    if (i < count) to[i] += from[i];
}

// A range of addresses with memory behind its first part.
class Segment {
  public:
    explicit Segment(std::size_t most) {
        DRIVER(cuCtxGetDevice(&device_));
        prop_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop_.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
        DRIVER(cuMemGetAllocationGranularity(&step_, &prop_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        reserved_ = (most + step_ - 1) / step_ * step_;
        DRIVER(cuMemAddressReserve(&base_, reserved_, 0, 0, 0));
    }
    ~Segment() {
        shrink(0);
        DRIVER(cuMemAddressFree(base_, reserved_));
    }

    void grow(std::size_t bytes) {
        while (handles_.size() * step_ < bytes) {
            CUmemGenericAllocationHandle handle;
            const CUdeviceptr at = base_ + handles_.size() * step_;
            DRIVER(cuMemCreate(&handle, step_, &prop_, 0));
            DRIVER(cuMemMap(at, step_, 0, handle, 0));
            const CUmemAccessDesc access = {prop_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
            DRIVER(cuMemSetAccess(at, step_, &access, 1));
            handles_.push_back(handle);
        }
    }

    void shrink(std::size_t bytes) {
        CHECK(cudaDeviceSynchronize());
        while (handles_.size() * step_ > bytes) {
            DRIVER(cuMemUnmap(base_ + (handles_.size() - 1) * step_, step_));
            DRIVER(cuMemRelease(handles_.back()));
            handles_.pop_back();
        }
    }

    unsigned* data() const { return reinterpret_cast<unsigned*>(base_); }

  private:
    CUdevice device_ = 0;
    CUmemAllocationProp prop_ = {};
    std::size_t step_ = 0, reserved_ = 0;
    CUdeviceptr base_ = 0;
    std::vector<CUmemGenericAllocationHandle> handles_;
};

int main(int argc, char** argv) {
    const std::size_t all = bytes_to_use(argc, argv, 16);
    const std::size_t bytes = kMiB, count = bytes / sizeof(unsigned);
    const std::size_t buffers = std::max<std::size_t>(all * 3 / 4 / bytes, 2);
    CHECK(cudaFree(nullptr));  // makes the context
    Segment segment(all / 4 + bytes);
    std::vector<unsigned*> plain(buffers);
    for (std::size_t b = 0; b < buffers; ++b) {
        CHECK(cudaMalloc(&plain[b], bytes));
        fill<<<blocks_for(count), 256>>>(plain[b], count, static_cast<unsigned>(b));
    }
    Digest digest;
    std::vector<unsigned> host(count);
    for (unsigned round = 0; round < 3; ++round) {
        const std::size_t parts = std::max<std::size_t>(all / 4 / bytes / (round % 2 + 1), 1);
        segment.grow(parts * bytes);
        for (std::size_t p = 0; p < parts; ++p) {
            unsigned* part = segment.data() + p * count;
            fill<<<blocks_for(count), 256>>>(part, count, static_cast<unsigned>(1000 * round + p));
            for (std::size_t b = p % buffers; b < buffers; b += parts) {
                add<<<blocks_for(count), 256>>>(part, plain[b], count);
                add<<<blocks_for(count), 256>>>(plain[b], part, count);
            }
        }
        CHECK_LAUNCH();
        for (std::size_t p = 0; p < parts; ++p) {
            CHECK(cudaMemcpy(host.data(), segment.data() + p * count, bytes, cudaMemcpyDeviceToHost));
            digest.add(host.data(), bytes);
        }
        segment.shrink(bytes);
    }
    for (unsigned* buffer : plain) {
        CHECK(cudaMemcpy(host.data(), buffer, bytes, cudaMemcpyDeviceToHost));
        digest.add(host.data(), bytes);
        CHECK(cudaFree(buffer));
    }
    digest.print("own_vmm");
    return succeed();
}
