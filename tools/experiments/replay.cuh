// A recorded step as an ordinary CUDA program does it: allocates each tensor, launches each kernel with the
// tensors it touches and for as long as it takes, and frees each tensor.
//
// The file comes from replay.py, sizes in bytes:
//   P id bytes             allocated before the first step
//   A id bytes, F id       allocated and freed, by cudaMallocAsync or cudaMalloc
//   T id P-id offset bytes a tensor inside P-id, as an allocator that divides its memory places it
//   K ns reads writes      a kernel: ids with commas, or -
//   G ids                  here the gradients are complete
#pragma once

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/apps/check.h"

namespace replay {

using Word = unsigned;
using Words = std::vector<Word>;

struct OutOfMemory {
    std::size_t bytes;
};

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
// stand for a tensor. Where the middle one is depends on memory (digest[1], which is 0), so that the code
// tells no more than that the kernel may reach all of it.
__global__ void work(Touched touched, unsigned rounds, Word number, Word* digest) {
    Word seen = number;
    const Word moved = digest[1];
    const auto middle = [&](const Tensor& t) { return min(t.count / 2 + moved, t.count - 1); };
#pragma unroll
    for (const Tensor& t : touched.reads)
        if (t.count != 0) seen = seen * 33 + t.words[0] + 3 * t.words[middle(t)] + 5 * t.words[t.count - 1];
    Word x = seen;
#pragma unroll 1
    for (unsigned i = 0; i < rounds; ++i) x = x * 1664525u + (x >> 16);
    seen ^= x == 1;
#pragma unroll
    for (const Tensor& t : touched.writes) {
        if (t.count == 0) continue;
        t.words[0] = seen;
        t.words[middle(t)] = seen ^ 0x55555555u;
        t.words[t.count - 1] = seen * 31;
    }
    *digest = *digest * 33 + seen;
}

// Reads and writes whole tensors, 16 bytes at a time; writes what is there.
__global__ void touch(Touched touched) {
    const unsigned first = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    Word seen = 0;
#pragma unroll
    for (const Tensor& t : touched.reads) {
        const auto* parts = reinterpret_cast<const uint4*>(t.words);
        for (unsigned k = first; k < t.count / 4; k += threads)
            seen ^= parts[k].x ^ parts[k].y ^ parts[k].z ^ parts[k].w;
    }
#pragma unroll
    for (const Tensor& t : touched.writes) {
        auto* parts = reinterpret_cast<uint4*>(t.words);
        for (unsigned k = first; k < t.count / 4; k += threads)
            parts[k] = make_uint4(k, k, k, k ^ (seen == 1));
    }
}

class Replay {
  public:
    Replay(const char* path, bool async, bool whole) : async_(async), whole_(whole) {
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);) add(line);
        CHECK(cudaMalloc(&digest_, 2 * sizeof(Word)));
        CHECK(cudaMemset(digest_, 0, 2 * sizeof(Word)));
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
        return milliseconds([&] { play(0, events_.size(), 0); });
    }

    // The step up to its gradients, of the batch of this number; adds them to the sums.
    void make_gradients(Word batch, Words& sums) {
        play(0, summed_at_, batch * static_cast<Word>(events_.size()));
        std::size_t next = 0;
        for (const int id : events_[summed_at_].reads) {
            const Words made = words_of(tensors_[id]);
            sums.resize(std::max(sums.size(), next + made.size()));
            for (const Word each : made) sums[next++] += each;
        }
    }

    // Frees what make_gradients left, for another batch.
    void drop() {
        for (const Event& e : events_)
            if (e.what == 'A' && tensors_[e.id].words != nullptr) release(tensors_[e.id]);
    }

    // The step from its gradients on, which are these sums.
    void update(const Words& sums) {
        const Word* next = sums.data();
        for (const int id : events_[summed_at_].reads) {
            const Tensor& t = tensors_[id];
            CHECK(cudaMemcpy(t.words, next, t.count * sizeof(Word), cudaMemcpyHostToDevice));
            next += t.count;
        }
        play(summed_at_ + 1, events_.size(), 0);
    }

    // Of all that kernels have read.
    Word digest() const {
        Word value = 0;
        CHECK(cudaMemcpy(&value, digest_, sizeof value, cudaMemcpyDeviceToHost));
        return value;
    }

    // Of what stays from step to step: the words that kernels write.
    Word parameters() const {
        Word value = 0;
        for (const Event& e : kept_) {
            const Words words = words_of(tensors_[e.id]);
            for (const std::size_t at : {std::size_t{0}, words.size() / 2, words.size() - 1})
                value = value * 33 + words[at];
        }
        return value;
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
        } else if (e.what == 'G') {
            std::string summed;
            in >> summed;
            e.reads = ids(summed);
            summed_at_ = events_.size();
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

    double launches_ns(unsigned rounds) {
        constexpr int kLaunches = 100;
        return 1e6 / kLaunches * milliseconds([&] {
                   for (int i = 0; i < kLaunches; ++i) work<<<1, 1>>>({}, rounds, 0, digest_);
               });
    }

    static Word* allocate(std::size_t bytes, bool async) {
        void* made = nullptr;
        const cudaError_t error = async ? cudaMallocAsync(&made, bytes, nullptr) : cudaMalloc(&made, bytes);
        if (error == cudaErrorMemoryAllocation) throw OutOfMemory{bytes};
        CHECK(error);
        return static_cast<Word*>(made);
    }

    void release(Tensor& t) const {
        CHECK(async_ ? cudaFreeAsync(t.words, nullptr) : cudaFree(t.words));
        t = {};
    }

    static Words words_of(const Tensor& t) {
        Words words(t.count);
        CHECK(cudaMemcpy(words.data(), t.words, t.count * sizeof(Word), cudaMemcpyDeviceToHost));
        return words;
    }

    // The events from one to another; the numbers of their kernels count from `number`.
    void play(std::size_t from, std::size_t to, Word number) {
        for (std::size_t i = from; i < to; ++i) play(events_[i], number + static_cast<Word>(i));
    }

    void play(const Event& e, Word number) {
        const auto count = static_cast<unsigned>(e.bytes / sizeof(Word));
        if (e.what == 'A') {
            tensors_[e.id] = {allocate(e.bytes, async_), count};
        } else if (e.what == 'T') {
            tensors_[e.id] = {tensors_[e.within].words + e.offset / sizeof(Word), count};
        } else if (e.what == 'F') {
            release(tensors_[e.id]);
        } else if (e.what == 'K') {
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
    std::size_t summed_at_ = 0;
    std::vector<Tensor> tensors_;
    Word* digest_ = nullptr;
    double launch_ns_ = 0, round_ns_ = 0;
};

}  // namespace replay
