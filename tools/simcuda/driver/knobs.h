// Every environment variable of the simulated driver, parsed once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace simcuda::driver {

// SIMCUDA_FAIL: the nth call (from 1) to the last of an entry point, by exported or base name, answers
// `error`.
struct FailRule {
    std::string name;
    std::uint64_t nth = 0;
    std::uint64_t last = 0;
    std::uint64_t error = 2;  // CUDA_ERROR_OUT_OF_MEMORY
};

// The forms of host-located VMM memory; NumaOnly is what drivers before CUDA 13 have.
enum class HostVmm { None, NumaOnly, All };

// SIMCUDA_PERVERSE: what a driver may do that this project hopes none does, each by the name of its
// enumerator.
enum class Perverse : unsigned {
    HostCreateCrashes,  // host-create-crashes: cuMemCreate of host memory ends the process
    HostCopiesFail,     // host-copies-fail: copies refuse addresses that lead to host memory
    HostSetsLost,       // host-sets-lost: sets of such addresses do nothing
    MovesLose,          // moves-lose: what is mapped where something else was has lost its beginning
    CopiesQueue,        // copies-queue: copies and sets wait for all work that any stream was given before
    UnmapDrains,        // unmap-drains: SIMCUDA_UNMAP_DRAINS
    AccessNotReady,     // access-not-ready: SIMCUDA_NOT_READY=3
    LaunchesOverlap,    // launches-overlap: a programmatic launch does not wait for what its stream was given
                        // last, a kernel or not, and events behind it tell of it alone
    OneQueue,           // one-queue: all work waits for all that any stream was given before
    HostCopiesEarly,    // host-copies-early: copies from host memory to host memory wait for nothing
    HostWritesLost,     // host-writes-lost: what kernels store at addresses that lead to host memory is lost
    HostAtomicsLost,    // host-atomics-lost: and what their atomic operations make of it
    CopiesBlock,        // copies-block: those between host and device return when they are done, as where
                        // they are staged (confidential computing)
    OneBusAddress,      // one-bus-address: all devices have the first one's, and none is found by it, as
                        // slices of one GPU (MIG) may
    LessThanFree,    // less-than-free: a quarter of what is called free is not to be had, as under a limit of
                     // an MPS server's
    LessAccessible,  // less-accessible: so much can be made, but access to it is "not ready" for good, as was
                     // seen under WSL
    MixedCopiesFail,    // mixed-copies-fail: copies refuse a range that leads to host and to device memory
    MappedCopiesEarly,  // mapped-copies-early: copies between host memory and addresses that lead to it wait
                        // for nothing
    MappingsApart,      // mappings-apart: access is set, and memory unmapped, of one mapping at a time
};

struct Knobs {
    // The machine
    std::uint64_t cuda = 13000;  // the version of CUDA that the driver is of
    std::uint64_t devices = 1;
    std::uint64_t arch = 75;    // compute capability, as in sm_75
    bool skips_native = false;  // kernels of native code alone do nothing
    std::uint64_t multiprocessors = 8;
    std::uint64_t memory = 1ull << 30;        // bytes per device
    std::uint64_t host_memory = 64ull << 30;  // bytes of page-locked and host-located memory there may be
    std::uint64_t granularity = 2ull << 20;   // bytes, of VMM memory
    std::uint64_t handles = 0;                // most physical handles alive; 0: no limit
    std::uint64_t mappings = 0;               // most VMM mappings alive; 0: no limit
    HostVmm host_vmm = HostVmm::All;          // host-located VMM memory that exists
    std::uint64_t kernels = 8;                // kernels running at once per device
    std::uint64_t queue = 1024;               // works pending in a stream before a call blocks
    std::uint64_t processes = 1;              // that begin together in simulated time, where they share GPUs
    std::string shared;  // file: processes with the same are on the same GPUs; empty: none are

    // What the driver takes for itself, bytes of device memory
    std::uint64_t context_bytes = 256 << 10;
    std::uint64_t module_bytes = 16 << 10;
    std::uint64_t stream_bytes = 4 << 10;
    std::uint64_t graph_bytes = 4 << 10;
    std::uint64_t local_threads = 1024;  // local memory is set aside for this many threads

    // Time
    std::uint64_t seed = 1;
    std::uint64_t delay_us = 100;  // longest random delay; 0: none
    double h2d_gbps = 0;           // 0: as fast as it goes
    double d2h_gbps = 0;
    double pin_gbps = 0;                  // at which host memory is page-locked
    bool simulated_time = false;          // not the machine's
    std::uint64_t kernel_us = 0;          // least time a kernel takes
    std::uint64_t kernel_timeout_ms = 0;  // 0: none
    std::uint64_t vmm_us = 0;             // time of each VMM call
    bool unmap_drains = false;            // cuMemUnmap waits for the device

    // Trouble and telling
    std::uint64_t not_ready = 0;  // every nth cuMemSetAccess is CUDA_ERROR_NOT_READY; 0: none
    std::vector<FailRule> fail;
    unsigned perverse = 0;  // a bit for each
    std::string log;        // file, or "stderr"; empty: none
    std::string report;     // file; empty: none
    std::string work;       // file, before the process number (work_log.h); empty: none
};

// Read from the environment at first use. A bad value is named on stderr and its default used.
const Knobs& knobs();

inline bool is(Perverse which) {
    return (knobs().perverse >> static_cast<unsigned>(which) & 1) != 0;
}

}  // namespace simcuda::driver
