// Buffers full of patterns, rewritten, mixed, copied, freed and allocated again at random from several
// threads, each with a stream of its own, and compared byte for byte with what the host worked out.
//
// patterns [--buffers N] [--bytes N] [--steps N] [--threads N] [--seed N] [--async]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

__host__ __device__ std::uint32_t pattern(std::uint32_t seed, std::uint32_t i) {
    std::uint32_t x = seed ^ (i * 0x9e3779b9u);
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    return x ^ (x >> 13);
}

__global__ void fill(std::uint32_t* to, std::uint32_t seed, std::uint32_t words) {
    const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) to[i] = pattern(seed, i);
}

__global__ void mix(std::uint32_t* to, const std::uint32_t* from, std::uint32_t words) {
    const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) to[i] = to[i] * 31 + from[i];
}

struct Options {
    int buffers = 16;
    std::size_t bytes = 1 << 20;
    int steps = 200;
    int threads = 1;
    unsigned seed = 1;
    bool async = false;
};

struct Buffer {
    std::uint32_t* device = nullptr;
    std::vector<std::uint32_t> expected;
};

class Worker {
  public:
    // All workers' first buffers live at once, however fast their threads are: the program needs as much
    // memory every time.
    Worker(const Options& options, int index) : options_(options), random_(options.seed * 1000 + index) {
        words_ = static_cast<std::uint32_t>(options_.bytes / 4);
        CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        CHECK(cudaMallocHost(&pinned_, options_.bytes));
        buffers_.resize(options_.buffers);
        for (Buffer& buffer : buffers_) make(buffer);
    }

    void run() {
        for (int step = 0; step < options_.steps; ++step) one_step();
        for (Buffer& buffer : buffers_) verify(buffer);
        for (Buffer& buffer : buffers_) release(buffer);
        CHECK(cudaStreamSynchronize(stream_));
        CHECK(cudaFreeHost(pinned_));
        CHECK(cudaStreamDestroy(stream_));
    }

  private:
    std::uint32_t any(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

    void make(Buffer& buffer) {
        if (options_.async) {
            CHECK(cudaMallocAsync(&buffer.device, options_.bytes, stream_));
        } else {
            CHECK(cudaMalloc(&buffer.device, options_.bytes));
        }
        buffer.expected.assign(words_, 0);
        launch_fill(buffer);
    }

    void release(Buffer& buffer) {
        if (options_.async) {
            CHECK(cudaFreeAsync(buffer.device, stream_));
        } else {
            CHECK(cudaFree(buffer.device));
        }
    }

    void launch_fill(Buffer& buffer) {
        const std::uint32_t seed = any(1u << 30);
        fill<<<(words_ + 255) / 256, 256, 0, stream_>>>(buffer.device, seed, words_);
        CHECK(cudaGetLastError());
        for (std::uint32_t i = 0; i < words_; ++i) buffer.expected[i] = pattern(seed, i);
    }

    void verify(const Buffer& buffer) {
        std::vector<std::uint32_t> got(words_);
        CHECK(cudaMemcpyAsync(got.data(), buffer.device, options_.bytes, cudaMemcpyDeviceToHost, stream_));
        CHECK(cudaStreamSynchronize(stream_));
        if (got == buffer.expected) return;
        std::uint32_t i = 0;
        while (got[i] == buffer.expected[i]) ++i;
        std::printf("buffer %zu, word %u of %u: %08x, expected %08x\n", &buffer - buffers_.data(), i, words_,
                    got[i], buffer.expected[i]);
        std::exit(1);
    }

    void one_step() {
        Buffer& buffer = buffers_[any(options_.buffers)];
        Buffer& other = buffers_[any(options_.buffers)];
        switch (any(8)) {
            case 0:
                return launch_fill(buffer);
            case 1:
            case 2: {
                mix<<<(words_ + 255) / 256, 256, 0, stream_>>>(buffer.device, other.device, words_);
                CHECK(cudaGetLastError());
                if (&buffer == &other) {
                    for (std::uint32_t& word : buffer.expected) word *= 32;
                } else {
                    for (std::uint32_t i = 0; i < words_; ++i) {
                        buffer.expected[i] = buffer.expected[i] * 31 + other.expected[i];
                    }
                }
                return;
            }
            case 3: {
                const int byte = static_cast<int>(any(256));
                CHECK(cudaMemsetAsync(buffer.device, byte, options_.bytes, stream_));
                std::memset(buffer.expected.data(), byte, options_.bytes);
                return;
            }
            case 4: {  // from pageable memory, part of the buffer
                const std::uint32_t first = any(words_);
                const std::uint32_t count = 1 + any(words_ - first);
                const std::uint32_t seed = any(1u << 30);
                std::vector<std::uint32_t> data(count);
                for (std::uint32_t i = 0; i < count; ++i) data[i] = pattern(seed, i);
                CHECK(cudaMemcpyAsync(buffer.device + first, data.data(), count * 4ull,
                                      cudaMemcpyHostToDevice, stream_));
                std::copy(data.begin(), data.end(), buffer.expected.begin() + first);
                return;
            }
            case 5: {  // from pinned memory, whole
                CHECK(cudaStreamSynchronize(stream_));
                const std::uint32_t seed = any(1u << 30);
                for (std::uint32_t i = 0; i < words_; ++i) pinned_[i] = pattern(seed, i);
                CHECK(
                    cudaMemcpyAsync(buffer.device, pinned_, options_.bytes, cudaMemcpyHostToDevice, stream_));
                std::memcpy(buffer.expected.data(), pinned_, options_.bytes);
                return;
            }
            case 6: {
                if (&buffer == &other) return verify(buffer);
                CHECK(cudaMemcpyAsync(buffer.device, other.device, options_.bytes, cudaMemcpyDeviceToDevice,
                                      stream_));
                buffer.expected = other.expected;
                return;
            }
            case 7:
                verify(buffer);
                release(buffer);
                return make(buffer);
        }
    }

    const Options options_;
    std::mt19937 random_;
    std::uint32_t words_ = 0;
    cudaStream_t stream_ = nullptr;
    std::uint32_t* pinned_ = nullptr;
    std::vector<Buffer> buffers_;
};

}  // namespace

int main(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--async") {
            options.async = true;
            continue;
        }
        const long value = i + 1 < argc ? std::atol(argv[++i]) : 0;
        if (name == "--buffers") options.buffers = static_cast<int>(value);
        if (name == "--bytes") options.bytes = static_cast<std::size_t>(value);
        if (name == "--steps") options.steps = static_cast<int>(value);
        if (name == "--threads") options.threads = static_cast<int>(value);
        if (name == "--seed") options.seed = static_cast<unsigned>(value);
    }
    std::deque<Worker> workers;
    for (int i = 0; i < options.threads; ++i) workers.emplace_back(options, i);
    std::vector<std::thread> threads;
    for (Worker& worker : workers) threads.emplace_back([&] { worker.run(); });
    for (std::thread& thread : threads) thread.join();
    std::printf("ok\n");
    return 0;
}
