// Does what a recorded step does, as an ordinary CUDA program: allocates each tensor, launches each kernel
// with the tensors it touches and for as long as it takes, and frees each tensor.
//
//   replay FILE STEPS malloc|async [touch]
//
// FILE comes from experiments.py, sizes in bytes:
//   P id bytes             allocated before the first step
//   A id bytes, F id       allocated and freed, by cudaMallocAsync or cudaMalloc
//   T id P-id offset bytes a tensor inside P-id, as a caching allocator places it
//   K ns reads writes      a kernel: ids with commas, or -
// `touch`: kernels read and write all bytes, for allocators whose buffers the shim may use where they are, in
// host memory. Prints the milliseconds of each step by the GPU's clock, with the simulated GPU's report
// (SIMCUDA_REPORT), and a digest of all that kernels have read.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include <cuda_profiler_api.h>

#include "tests/apps/check.h"

namespace {

using Word = unsigned;

struct Tensor {
    Word* words;
    unsigned count;
};

constexpr int kReads = 6, kWrites = 4;

// The tensors of a kernel; those it lacks have no words. Its addresses stand at fixed places, as in most
// programs, so what is written can be told from the code.
struct Touched {
    Tensor reads[kReads], writes[kWrites];
};

struct Event {
    char what;
    int id = 0, within = 0;
    std::size_t bytes = 0, offset = 0;
    double ns = 0;
    std::vector<int> reads, writes;
};

// One thread, which the simulated GPU times as a GPU full of them. The words at both ends and in the middle
// stand for a tensor.
__global__ void work(Touched touched, unsigned rounds, Word number, Word* digest) {
    Word seen = number;
#pragma unroll
    for (const Tensor& t : touched.reads)
        if (t.count != 0) seen = seen * 33 + t.words[0] + 3 * t.words[t.count / 2] + 5 * t.words[t.count - 1];
    Word x = seen;
#pragma unroll 1
    for (unsigned i = 0; i < rounds; ++i) x = x * 1664525u + (x >> 16);
    seen ^= x == 1;
#pragma unroll
    for (const Tensor& t : touched.writes) {
        if (t.count == 0) continue;
        t.words[0] = seen;
        t.words[t.count / 2] = seen ^ 0x55555555u;
        t.words[t.count - 1] = seen * 31;
    }
    *digest = *digest * 33 + seen;
}

// Reads and writes whole tensors; writes what is there.
__global__ void touch(Touched touched) {
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    Word seen = 0;
#pragma unroll
    for (const Tensor& t : touched.reads)
        for (unsigned k = first; k < t.count; k += threads) seen ^= t.words[k];
#pragma unroll
    for (const Tensor& t : touched.writes)
        for (unsigned k = first; k < t.count; k += threads) t.words[k] = k ^ (seen == 1);
}

class Replay {
  public:
    Replay(const char* path, bool async, bool whole) : async_(async), whole_(whole) {
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);) add(line);
        CHECK(cudaMalloc(&digest_, sizeof(Word)));
        CHECK(cudaMemset(digest_, 0, sizeof(Word)));
        // What a round takes, and a launch beside.
        const double some = launches_ns(1000), more = launches_ns(2000);
        round_ns_ = (more - some) / 1000;
        launch_ns_ = some - 1000 * round_ns_;
        for (const Event& e : kept_) {
            tensors_[e.id] = {allocate(e.bytes, false), static_cast<unsigned>(e.bytes / sizeof(Word))};
            CHECK(cudaMemset(tensors_[e.id].words, e.id % 7 + 1, e.bytes));
        }
    }

    double step() {
        return milliseconds([&] {
            for (std::size_t i = 0; i < events_.size(); ++i) play(events_[i], static_cast<Word>(i));
        });
    }

    Word digest() const {
        Word value = 0;
        CHECK(cudaMemcpy(&value, digest_, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    }

  private:
    void add(const std::string& line) {
        std::istringstream in(line);
        Event e{};
        in >> e.what;
        if (e.what == 'K') {
            std::string reads, writes;
            in >> e.ns >> reads >> writes;
            e.reads = ids(reads);
            e.writes = ids(writes);
            if (e.reads.size() > kReads || e.writes.size() > kWrites)
                FAIL("too many tensors: %s", line.c_str());
        } else if (e.what == 'T') {
            in >> e.id >> e.within >> e.offset >> e.bytes;
        } else {
            in >> e.id >> e.bytes;
        }
        tensors_.resize(std::max<std::size_t>(tensors_.size(), e.id + 1));
        (e.what == 'P' ? kept_ : events_).push_back(std::move(e));
    }

    static std::vector<int> ids(const std::string& text) {
        std::vector<int> found;
        std::istringstream in(text);
        for (std::string each; std::getline(in, each, ',') && each != "-";) found.push_back(std::stoi(each));
        return found;
    }

    template <typename F>
    static double milliseconds(F&& work_of) {
        cudaEvent_t begin, end;
        CHECK(cudaEventCreate(&begin));
        CHECK(cudaEventCreate(&end));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventRecord(begin));
        work_of();
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float ms = 0;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        CHECK(cudaEventDestroy(begin));
        CHECK(cudaEventDestroy(end));
        return ms;
    }

    double launches_ns(unsigned rounds) {
        constexpr int kLaunches = 100;
        return 1e6 / kLaunches * milliseconds([&] {
                   for (int i = 0; i < kLaunches; ++i) work<<<1, 1>>>({}, rounds, 0, digest_);
               });
    }

    static Word* allocate(std::size_t bytes, bool async) {
        void* made = nullptr;
        CHECK(async ? cudaMallocAsync(&made, bytes, nullptr) : cudaMalloc(&made, bytes));
        return static_cast<Word*>(made);
    }

    void play(const Event& e, Word number) {
        const auto count = static_cast<unsigned>(e.bytes / sizeof(Word));
        if (e.what == 'A') {
            tensors_[e.id] = {allocate(e.bytes, async_), count};
        } else if (e.what == 'T') {
            tensors_[e.id] = {tensors_[e.within].words + e.offset / sizeof(Word), count};
        } else if (e.what == 'F') {
            CHECK(async_ ? cudaFreeAsync(tensors_[e.id].words, nullptr) : cudaFree(tensors_[e.id].words));
        } else {
            launch(e, number);
        }
    }

    void launch(const Event& e, Word number) {
        Touched touched{};
        for (std::size_t i = 0; i < e.reads.size(); ++i) touched.reads[i] = tensors_[e.reads[i]];
        for (std::size_t i = 0; i < e.writes.size(); ++i) touched.writes[i] = tensors_[e.writes[i]];
        if (whole_) touch<<<32, 256>>>(touched);
        work<<<1, 1>>>(touched, static_cast<unsigned>(std::max(0.0, e.ns - launch_ns_) / round_ns_ + 0.5),
                       number, digest_);
        CHECK_LAUNCH();
    }

    const bool async_, whole_;
    std::vector<Event> kept_, events_;
    std::vector<Tensor> tensors_;
    Word* digest_ = nullptr;
    double launch_ns_ = 0, round_ns_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    const std::string how = argc > 3 ? argv[3] : "";
    if (argc < 4 || (how != "malloc" && how != "async")) {
        std::cerr << "usage: replay FILE STEPS malloc|async [touch]\n";
        return 2;
    }
    Replay replay(argv[1], how == "async", argc > 4);
    const char* report = std::getenv("SIMCUDA_REPORT");
    for (int step = 0; step < std::atoi(argv[2]); ++step) {
        std::cout << replay.step();
        if (report != nullptr) {
            CHECK(cudaProfilerStop());  // the simulated GPU then writes it
            std::ifstream file(report);
            std::cout << ' ';
            for (std::string line; std::getline(file, line);) std::cout << line;
        }
        std::cout << std::endl;
    }
    std::cout << "digest " << replay.digest() << '\n';
}
