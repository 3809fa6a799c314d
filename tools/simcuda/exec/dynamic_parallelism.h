// Kernels launched by a kernel (dynamic parallelism). They run when the blocks of the grid that launched them
// have ended, one after another, before that grid counts as complete: CUDA promises no earlier time, and a
// grid cannot wait for its children.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/simcuda/exec/grid.h"

namespace simcuda::exec {

// What one grid launches. Thread-safe.
class Children {
  public:
    explicit Children(const Launch& parent) : parent_(parent) {}

    // The device address of the parameter block for a launch of kernel number `kernel` of the program, from 1
    // (translated code's name of a kernel). 0 if there is no such kernel or the shape is none.
    std::uint64_t prepare(std::uint64_t kernel, const std::uint32_t grid[3], const std::uint32_t block[3],
                          std::uint32_t shared_bytes);
    // Launches what was prepared with that parameter block; false if nothing was.
    bool launch(std::uint64_t parameters, std::uint64_t stream);

    // All launched so far, in the order they are to run.
    std::vector<Launch> take();

  private:
    const Launch& parent_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::unique_ptr<Launch>> prepared_;  // by their parameter block
    std::vector<Launch> launched_;
    std::vector<Launch> last_;  // launched to run when all else is done
};

}  // namespace simcuda::exec
