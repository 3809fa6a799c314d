// calls KIND COUNT [EXTRA [STREAMS [THREADS]]]: COUNT driver calls of one kind, for counting the instructions
// of one (tests/bench.sh). EXTRA more buffers of 4 MiB are allocated and never used, which decides whether
// everything fits. The calls go to STREAMS streams in turn, one unless said. With THREADS, so many
// threads make COUNT launches each, in streams of their own, and the nanoseconds that one took are printed.
// The driver behind it does nothing for them (null_driver.cpp), so what is counted is the shim. Of the kinds
// that allocate a call is one allocation and one free: `same` of the size of all others, `random` of a random
// size in place of a random one, `no-hole` of more than the holes hold that were made between all others,
// `ordered` in stream order while all others have been freed there and the stream has not come so far.
#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

namespace {

void require(CUresult status) {
    if (status == CUDA_SUCCESS) return;
    std::fprintf(stderr, "calls: error %d\n", static_cast<int>(status));
    std::exit(1);
}

constexpr std::size_t kBytes = 4 << 20;

struct Allocations {
    std::vector<CUdeviceptr> live;
    std::minstd_rand random;

    static CUdeviceptr made(std::size_t bytes) {
        CUdeviceptr address = 0;
        require(cuMemAlloc(&address, bytes));
        return address;
    }
    void prepare(std::string_view kind, CUstream stream) {
        if (kind == "no-hole") {
            for (std::size_t i = 0; i < live.size(); i += 2) require(cuMemFree(live[i]));
        } else if (kind == "ordered") {
            for (const CUdeviceptr each : live) require(cuMemFreeAsync(each, stream));
        }
    }
    // False: it is no such kind.
    bool call(std::string_view kind, CUstream stream) {
        if (kind == "same") {
            require(cuMemFree(made(kBytes)));
        } else if (kind == "no-hole") {
            require(cuMemFree(made(3 * kBytes)));
        } else if (kind == "random") {
            CUdeviceptr& one = live[random() % live.size()];
            require(cuMemFree(one));
            one = made((1 + random() % 8) * (kBytes / 2));
        } else if (kind == "ordered") {
            CUdeviceptr address = 0;
            require(cuMemAllocAsync(&address, kBytes, stream));
            require(cuMemFreeAsync(address, stream));
        } else {
            return false;
        }
        return true;
    }
};

}  // namespace

int main(int argc, char** argv) {
    const std::string_view kind = argc > 2 ? argv[1] : "";
    const int count = argc > 2 ? std::atoi(argv[2]) : 0;
    CUcontext context = nullptr;
    std::vector<CUstream> streams(argc > 4 ? std::atoi(argv[4]) : 1);
    CUevent event = nullptr;
    CUdeviceptr a = 0;
    CUdeviceptr b = 0;
    require(cuInit(0));
    require(cuDevicePrimaryCtxRetain(&context, 0));
    require(cuCtxSetCurrent(context));
    for (CUstream& each : streams) require(cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
    require(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    require(cuMemAlloc(&a, kBytes));
    require(cuMemAlloc(&b, kBytes));
    Allocations allocations;
    for (int i = argc > 3 ? std::atoi(argv[3]) : 0; i > 0; --i)
        allocations.live.push_back(Allocations::made(kBytes));
    allocations.prepare(kind, streams[0]);
    char host[64] = {};
    int n = 1;
    void* parameters[] = {&a, &b, &n};
    // As kernels have them that work on many tensors at once.
    CUdeviceptr block[512] = {a, b};
    std::size_t block_bytes = sizeof block;
    void* in_struct[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE, &block_bytes,
                         CU_LAUNCH_PARAM_END};
    // The driver tells the same of any.
    const auto kernel = reinterpret_cast<CUfunction>(&n);
    // One that takes eight addresses: the driver reads how many from it.
    int of_eight = 8;
    const auto kernel8 = reinterpret_cast<CUfunction>(&of_eight);
    CUdeviceptr eight[8] = {};  // of a chunk each
    for (int i = 0; i < 8 && kind == "launch8"; ++i) eight[i] = Allocations::made(kBytes / 2);
    void* parameters8[] = {&eight[0], &eight[1], &eight[2], &eight[3], &eight[4],
                           &eight[5], &eight[6], &eight[7], &n};
    const auto launch8 = [&](CUstream stream) {
        require(cuLaunchKernel(kernel8, 1, 1, 1, 32, 1, 1, 0, stream, parameters8, nullptr));
    };
    if (argc > 5) {
        const int others = std::atoi(argv[5]);
        std::vector<CUstream> own(others);
        for (CUstream& each : own) require(cuStreamCreate(&each, CU_STREAM_NON_BLOCKING));
        const auto begin = std::chrono::steady_clock::now();
        std::vector<std::thread> threads;
        for (const CUstream stream : own) {
            threads.emplace_back([&, stream] {
                require(cuCtxSetCurrent(context));
                for (int i = 0; i < count; ++i) launch8(stream);
            });
        }
        for (std::thread& each : threads) each.join();
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
        std::printf("%.0f\n", took.count() / count);
        return 0;
    }
    for (int i = 0; i < count; ++i) {
        const CUstream stream = streams[i % streams.size()];
        if (kind == "launch") {
            require(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, parameters, nullptr));
        } else if (kind == "launch8") {
            launch8(stream);
        } else if (kind == "struct") {
            require(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, in_struct));
        } else if (kind == "copy") {
            require(cuMemcpyAsync(a, b, kBytes, stream));
        } else if (kind == "upload") {
            require(cuMemcpyHtoDAsync(a, host, sizeof host, stream));
        } else if (kind == "set") {
            require(cuMemsetD8Async(a, 0, kBytes, stream));
        } else if (kind == "record") {
            require(cuEventRecord(event, stream));
        } else if (kind == "attribute") {
            CUdeviceptr of = 0;
            require(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, a + 64));
        } else if (!allocations.call(kind, stream)) {
            std::fprintf(stderr,
                         "calls KIND COUNT [EXTRA [STREAMS [THREADS]]]: launch, launch8, struct, copy, "
                         "upload, set, record, "
                         "attribute, same, random, no-hole or ordered\n");
            return 2;
        }
    }
    return 0;
}
