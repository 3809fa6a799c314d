// A random program of one thread, and what its buffers must hold in the end.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/engine/rig.h"

namespace lms::fake {

struct ProgramOptions {
    std::size_t streams = 3;
    std::size_t buffers = 12;     // about as many live at once
    std::uint64_t granules = 12;  // of the largest buffer
    bool hidden = false;          // some kernels write a buffer that they do not name
    bool stream_ordered = true;   // some allocations and frees are
    bool may_run_out = false;     // any call may answer OUT_OF_MEMORY
    bool stale_names = false;     // some launches name addresses of freed buffers, as old structs do
};

// The model runs ahead in program order; the GPU follows, ordered across streams by events.
class Program {
  public:
    Program(Rig& rig, const ProgramOptions& options, std::uint64_t seed);

    void run(std::size_t steps);
    // Compares every byte of every buffer.
    void verify();
    // Frees everything.
    void finish();

    // The first thing that went wrong; empty if nothing did. (Assertions of other threads cannot throw.)
    const std::string& problem() const { return problem_; }
    std::size_t refused() const { return refused_; }

  private:
    struct Buffer {
        Region region;
        Bytes expected;
        MarkerPtr written;
        std::vector<MarkerPtr> read;
    };

    void step();
    void allocate();
    void free(std::size_t index);
    void launch();
    void copy();
    void upload(Buffer& buffer, std::uint64_t offset, std::uint64_t bytes, CUstream stream);
    void part_of(const Buffer& buffer, std::uint64_t& offset, std::uint64_t& bytes);

    // Frees a buffer whose contents are undefined now: a copy to it was refused.
    void give_up(Address address);
    // Submits a job over the buffers it reads and writes, after what they depend on; true if it was taken.
    bool submit(Job job, const std::vector<Buffer*>& reads, const std::vector<Buffer*>& writes);
    void order(CUstream stream, const Buffer& buffer, bool writes);
    bool accept(CUresult status, const char* what, bool may_run_out);
    // Whether a job over these may be more than fits at once.
    bool too_large(const std::vector<Buffer*>& reads, const std::vector<Buffer*>& writes) const;
    void complain(std::string what);
    std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
    CUstream any_stream() { return streams_[below(streams_.size())]; }
    Buffer& any_buffer() { return buffers_[below(buffers_.size())]; }

    Rig& rig_;
    ProgramOptions options_;
    std::mt19937_64 random_;
    std::vector<CUstream> streams_;
    std::vector<Buffer> buffers_;
    std::vector<Address> stale_;
    std::string problem_;
    std::size_t refused_ = 0;
};

}  // namespace lms::fake
