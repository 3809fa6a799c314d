// Many threads, streams and remappings at once, over several seeds: every byte is where the program's order
// put it.
#include <cstring>
#include <random>
#include <thread>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/vmm.h"

namespace {

using namespace sim;

constexpr std::size_t kChunk = 64 << 10;
constexpr unsigned kWords = kChunk / 4;

// One buffer of a thread: an address that is backed by device or host memory in turn, as the contents need
// not know.
struct Buffer {
    CUdeviceptr address = 0, device_alias = 0, host_alias = 0;
    CUmemGenericAllocationHandle device = 0, host = 0;
    bool on_host = false;
    std::uint32_t value = 0;  // what every word holds
};

class Worker {
  public:
    Worker(const Kernels& kernels, std::uint32_t seed) : random_(seed), increment_(kernels["increment"]) {
        OK(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
        OK(cuStreamCreate, &copies_, CU_STREAM_NON_BLOCKING);
        OK(cuEventCreate, &event_, CU_EVENT_DISABLE_TIMING);
        OK(cuMemHostAlloc, reinterpret_cast<void**>(&pinned_), kChunk, 0);
        for (Buffer& buffer : buffers_) {
            buffer.address = reserve(kChunk);
            buffer.device_alias = reserve(kChunk);
            buffer.host_alias = reserve(kChunk);
            buffer.device = create(kChunk);
            buffer.host = create(kChunk, on_host());
            map(buffer.device_alias, kChunk, buffer.device);
            map(buffer.host_alias, kChunk, buffer.host);
            map(buffer.address, kChunk, buffer.device);
            OK(cuMemsetD32Async, buffer.address, buffer.value, kWords, stream_);
        }
    }

    void work(int steps) {
        for (int i = 0; i < steps; ++i) {
            Buffer& one = buffers_[random_() % 4];
            Buffer& other = buffers_[random_() % 4];
            switch (random_() % 5) {
                case 0:
                    add(one, other);
                    break;
                case 1:
                    move(one);
                    break;
                case 2:
                    fill(one);
                    break;
                case 3:
                    upload(one);
                    break;
                default:
                    check(one);
                    break;
            }
        }
        for (Buffer& buffer : buffers_) check(buffer);
    }

  private:
    void add(Buffer& to, const Buffer& from) {
        LAUNCH(increment_, kWords / 256, 256, stream_, to.address, from.address, kWords);
        to.value = from.value + 1;
    }

    void fill(Buffer& buffer) {
        buffer.value = random_();
        OK(cuMemsetD32Async, buffer.address, buffer.value, kWords, stream_);
    }

    // Through the alias on another stream, which waits for the first and is waited for.
    void upload(Buffer& buffer) {
        OK(cuStreamSynchronize, stream_);
        buffer.value = random_();
        std::fill_n(pinned_, kWords, buffer.value);
        OK(cuMemcpyHtoDAsync, buffer.on_host ? buffer.host_alias : buffer.device_alias, pinned_, kChunk,
           copies_);
        join(copies_, stream_);
    }

    // The bytes go to the other memory, then the address follows them.
    void move(Buffer& buffer) {
        const CUdeviceptr from = buffer.on_host ? buffer.host_alias : buffer.device_alias;
        const CUdeviceptr to = buffer.on_host ? buffer.device_alias : buffer.host_alias;
        join(stream_, copies_);
        OK(cuMemcpyAsync, to, from, kChunk, copies_);
        OK(cuStreamSynchronize, copies_);
        OK(cuMemUnmap, buffer.address, kChunk);
        buffer.on_host = !buffer.on_host;
        map(buffer.address, kChunk, buffer.on_host ? buffer.host : buffer.device);
        OK(cuMemsetD8Async, from, 0xDD, kChunk, copies_);  // what is left there must not matter
    }

    void check(const Buffer& buffer) {
        join(copies_, stream_);
        std::vector<std::uint32_t> words(kWords);
        OK(cuMemcpyDtoHAsync, words.data(), buffer.address, kChunk, stream_);
        EXPECT(words == std::vector<std::uint32_t>(kWords, buffer.value));
    }

    void join(CUstream before, CUstream after) {
        OK(cuEventRecord, event_, before);
        OK(cuStreamWaitEvent, after, event_, 0);
    }

    std::mt19937 random_;
    CUfunction increment_;
    CUstream stream_ = nullptr, copies_ = nullptr;
    CUevent event_ = nullptr;
    std::uint32_t* pinned_ = nullptr;
    Buffer buffers_[4];
};

void many_threads() {
    const Gpu gpu;
    const Kernels kernels;
    const auto seed = static_cast<std::uint32_t>(std::stoul(std::getenv("SIMCUDA_SEED")));
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            try {
                OK(cuCtxSetCurrent, gpu.context);
                Worker(kernels, 100 * seed + i).work(150);
            } catch (const Stop&) {
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    OK(cuCtxSynchronize);
}

TEST_CASE("random: threads that compute, copy and remap at once lose no byte") {
    for (int seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        CHECK(run({{"SIMCUDA_SEED", std::to_string(seed)}, {"SIMCUDA_GRANULARITY", "64K"}}, many_threads) ==
              "");
    }
}

}  // namespace
