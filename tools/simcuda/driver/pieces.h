// Pieces of device memory that small allocations are cut from, as NVIDIA's drivers cut theirs: 2 MiB each,
// mapped in one, so that many allocations do not take the mappings that the system has (vm.max_map_count).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/gaps.h"
#include "tools/simcuda/driver/physical.h"

namespace simcuda::driver {

// Of one device. Thread-safe.
class Pieces {
  public:
    static constexpr std::uint64_t kBytes = 2 << 20;  // of a piece
    static constexpr std::uint64_t kAlignment = 512;  // of what is cut from it
    static constexpr std::uint64_t kMost = 1 << 20;   // bytes that are cut from one

    explicit Pieces(PhysicalPool& memory) : memory_(memory) {}

    struct Cut {
        DeviceAddress address = 0;
        std::shared_ptr<Physical> physical;
    };
    // Memory that is poisoned and that kernels reach; its address is 0 if a further piece is needed and
    // cannot be had. `bytes` is at most kMost.
    Cut cut(std::uint64_t bytes);
    // What was cut of that size. An empty piece is given back.
    void give_back(DeviceAddress address, std::uint64_t bytes);

  private:
    struct Piece {
        Gaps gaps;
        std::shared_ptr<Physical> physical;
    };
    using All = std::map<DeviceAddress, Piece>;
    All::iterator add();  // end() if it cannot be had

    PhysicalPool& memory_;
    std::mutex mutex_;  // guards what follows
    All pieces_;
    DeviceAddress next_ = 0;  // the search begins with the piece here
    std::uint32_t poison_ = 0;
};

}  // namespace simcuda::driver
