// Runs the blocks of one kernel launch on the threads that are lent to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/simcuda/address.h"
#include "tools/simcuda/ptx/program.h"

namespace simcuda::exec {

// A Program loaded in a context: each variable (same order as Program::variables()) has its device memory.
struct Image {
    std::shared_ptr<const ptx::Program> program;
    std::vector<DeviceAddress> variable_addresses;
};

struct Launch {
    std::shared_ptr<const Image> image;  // keeps the code loaded while the grid runs
    const ptx::Kernel* kernel = nullptr;
    std::uint32_t grid[3] = {1, 1, 1};   // blocks
    std::uint32_t block[3] = {1, 1, 1};  // threads
    std::uint32_t cluster[3] = {1, 1,
                                1};  // blocks, of which the grid is a multiple; all are in flight at once
    bool explicit_cluster = false;   // somebody asked for clusters
    std::uint32_t dynamic_shared_bytes = 0;
    std::vector<std::byte> parameters;  // the parameter block, Kernel::parameter_bytes long
    bool cooperative = false;
    std::uint32_t multiprocessors = 1;  // that blocks are told to run on, by turns
    std::uint64_t time_limit_ns = 0;    // 0: none
    std::uint64_t seed = 0;             // of choices among orders that are all allowed
};

enum class Outcome { Finished, IllegalAddress, Trap, Assert, NotSupported, Timeout };

// Thread-safe: any number of workers may call run() at once; each takes blocks nobody has taken yet.
class Grid {
  public:
    virtual ~Grid() = default;

    // Runs up to `max_blocks` further blocks on the calling thread, to their end. Returns false when there
    // was none left to take (others may still be running theirs). After a failure no further block starts.
    virtual bool run(std::uint32_t max_blocks) = 0;

    // True once every block has ended, or one failed and no other is running.
    virtual bool finished() const = 0;
    virtual Outcome outcome() const = 0;
    virtual DeviceAddress fault_address() const = 0;  // with IllegalAddress
    virtual std::string message() const = 0;          // with NotSupported: why

    static std::unique_ptr<Grid> create(Launch launch);
};

// Runs `work` with faults caught: returns false, and the device address touched, when it touched memory that
// is not there. For copy engines. `work` must own nothing that needs a destructor while it runs.
bool guarded(void (*work)(void* argument), void* argument, DeviceAddress* fault);

}  // namespace simcuda::exec
