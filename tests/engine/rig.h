// A session over a fake GPU, and the way entry/ submits work to one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shim/program/fast_path.h"
#include "shim/session/session.h"
#include "tests/engine/kernels.h"
#include "tests/support/fake_port.h"

// One thread may do without the lock what several need it for, and hold it across what the fake GPU does at
// once.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wthread-safety-analysis"
#endif

namespace lms::fake {

struct RigOptions {
    std::uint64_t granularity = 64;
    std::uint64_t granules = 128;        // of device memory
    std::uint64_t host_granules = 1024;  // LMS_HOST_LIMIT
    bool maps_host = true;
    Safety safety = Safety::Opaque;
    std::string policy = "lru";
    std::optional<double> frac;
    std::optional<std::uint64_t> limit_granules;
    std::optional<std::uint64_t> soft_limit_granules;
    std::uint64_t reserve_granules = 0;
    MemInfo meminfo = MemInfo::Physical;
    bool check = false;
    std::uint64_t seed = 1;
    std::uint64_t address_granules = UINT32_MAX;  // the most that the driver has
    bool remaps_wait = false;                     // each waits for all work
};

struct Job {
    CUstream stream;
    std::vector<Address> names;  // as arguments of a kernel
    std::vector<session::Range> ranges;
    bool opaque = false;
    Kernel kernel;
    std::vector<Address> reads = {};  // as arguments by which it writes nothing
    bool unseen = false;
    const void* code = nullptr;
};

class Rig {
  public:
    explicit Rig(const RigOptions& options);
    ~Rig();

    session::Session& session() { return *session_; }
    FakePort& gpu() { return *gpu_; }
    const RigOptions& options() const { return options_; }

    CUstream stream();
    void destroy(CUstream stream);
    void destroy_streams();  // all that there are

    // What a program's launch or copy does. Any thread.
    CUresult submit(Job job);

    // Whole buffers, waiting for the work: written with noise, read back.
    CUresult write(CUstream stream, Region buffer, const Bytes& bytes);
    CUresult read(CUstream stream, Region buffer, Bytes& bytes);

    // Waits for everything, as a program does before cudaFree.
    void drain();
    // Bytes of [address, address + bytes) that lie on the device.
    std::uint64_t on_device(Region region);
    // Maps memory of the program's own, and lets the GPU in.
    CUresult map(Address home, Address address);
    // Device bytes that managed memory may take, and what may be allocated in all.
    std::uint64_t budget() const;
    std::uint64_t capacity() const;

  private:
    RigOptions options_;
    Settings settings_;
    FakePort* gpu_ = nullptr;
    std::unique_ptr<session::Session> session_;
    std::vector<CUstream> streams_;
};

}  // namespace lms::fake
