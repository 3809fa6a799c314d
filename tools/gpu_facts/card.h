// The GPU a probe works on, and the memory it takes there.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/gpu_facts/driver.h"

namespace facts {

using Address = CUdeviceptr;

enum class Place { Device, Host };

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::string mib_text(std::uint64_t bytes);  // "2 MiB"

template <class Work>
double microseconds(Work&& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

struct Limits {
    std::uint64_t memory_bytes =
        0;  // device memory a probe may take, and as much host memory; 0: half of what is free
    std::uint64_t most = 70'000;  // handles or mappings to stop at; above Linux's default vm.max_map_count
};

// One device with its primary context current on the calling thread, and the kernels loaded in it. Throws
// Failure.
class Card {
  public:
    explicit Card(const Limits& limits);

    int attribute(CUdevice_attribute which) const;  // 0 where the driver does not know it
    std::string name() const;
    bool simulated() const;  // never to be taken for a real one
    // The module with the probes' kernels, loaded into the current context.
    CUmodule load_kernels() const;
    CUfunction kernel(const char* name) const;
    // At most `wanted`, and a share of the memory a probe may take; a multiple of the granularity, never 0.
    std::uint64_t sized(std::uint64_t wanted, unsigned share) const;
    // How memory behind addresses on the host is asked for; INVALID where the device has none. HOST before
    // HOST_NUMA.
    CUmemLocation host_location() const;
    CUmemLocation location(Place place) const;
    std::vector<CUmemLocation> host_locations() const;  // each kind that the device says it has

    CUdevice device = 0;
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    std::uint64_t granularity = 0;   // bytes, of memory on the device
    std::uint64_t memory_bytes = 0;  // device memory a probe may take
    std::uint64_t host_bytes = 0;    // host memory a probe may pin
    std::uint64_t most = 0;
};

CUmemGenericAllocationHandle create(std::uint64_t bytes, CUmemLocation location);
// Reads and writes for the device, and for the CPU too where the memory is the host's.
void grant(const Card& card, Address address, std::uint64_t bytes, CUmemLocation location);
unsigned not_ready_answers();  // that grant() got in this process, and asked again after
Address reserve(std::uint64_t bytes);

// Memory at an address of its own, mapped and accessible; given back at the end.
class Block {
  public:
    Block(const Card& card, std::uint64_t size, CUmemLocation location);
    Block(const Card& card, std::uint64_t size, Place place) : Block(card, size, card.location(place)) {}
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    // Unmaps what is at the address and maps this instead; `handle` stays its owner's.
    void remap(const Card& card, CUmemGenericAllocationHandle other, CUmemLocation location);

    const std::uint64_t bytes;
    Address address = 0;
    CUmemGenericAllocationHandle handle = 0;
};

// Pinned memory of the host.
class Pinned {
  public:
    explicit Pinned(std::uint64_t bytes);
    ~Pinned();
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;

    Address address() const { return reinterpret_cast<Address>(data); }

    void* data = nullptr;
};

class Stream {
  public:
    Stream();
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    operator CUstream() const { return stream_; }
    bool busy() const;  // throws Failure if its work failed
    void wait() const;  // the same

  private:
    CUstream stream_ = nullptr;
};

struct Grid {
    unsigned blocks = 1;
    unsigned threads = 1;
};

// Launches a kernel with these arguments, which must have the parameters' types exactly.
template <class... Arguments>
void launch(CUfunction kernel, Grid grid, CUstream stream, Arguments... arguments) {
    void* pointers[] = {&arguments..., nullptr};
    CU(cuLaunchKernel, kernel, grid.blocks, 1, 1, grid.threads, 1, 1, 0, stream, pointers, nullptr);
}

// GB/s (1e9 bytes) of work enqueued in the stream, by events around it.
template <class Work>
double gigabytes_per_second(CUstream stream, std::uint64_t bytes, Work&& work) {
    CUevent begin = nullptr, end = nullptr;
    CU(cuEventCreate, &begin, CU_EVENT_DEFAULT);
    CU(cuEventCreate, &end, CU_EVENT_DEFAULT);
    CU(cuEventRecord, begin, stream);
    work();
    CU(cuEventRecord, end, stream);
    CU(cuEventSynchronize, end);
    float milliseconds = 0;
    CU(cuEventElapsedTime, &milliseconds, begin, end);
    CU(cuEventDestroy_v2, begin);
    CU(cuEventDestroy_v2, end);
    return milliseconds > 0 ? static_cast<double>(bytes) / (1e6 * milliseconds) : 0;
}

}  // namespace facts
