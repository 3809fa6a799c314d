// Runs the blocks of one kernel launch on the threads that are lent to it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// Set by others, once and for all.
using Flags = std::vector<std::shared_ptr<const std::atomic<bool>>>;
inline bool all_set(const Flags& flags) {
    return std::all_of(flags.begin(), flags.end(), [](const auto& flag) { return flag->load(); });
}

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
    // Of a grid that may begin before those it comes behind have ended: whether they have.
    Flags behind;
    // Called once, by one of those that run the grid, when each of its blocks has let go what may begin
    // before it has ended, or has ended itself; null: nobody asks. Must not block.
    std::function<void()> on_let_go;
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
