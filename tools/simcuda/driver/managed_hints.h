// What programs have said of managed memory: advice and prefetches, page by page. It is coherent by itself
// here, so this is only ever asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"

namespace simcuda::driver {

struct ManagedHint {
    bool read_mostly = false;
    std::optional<CUmemLocation> preferred, prefetched;
    std::set<int> accessed_by;  // device ordinals; CU_DEVICE_CPU for the host
};

// Thread-safe. `address` and `bytes` are widened to whole pages.
void change_hints(std::uint64_t address, std::uint64_t bytes,
                  const std::function<void(ManagedHint&)>& change);
void forget_hints(std::uint64_t address, std::uint64_t bytes);

// Of every page of the range; pages next to each other with the same hints are told once or more often.
std::vector<ManagedHint> hints_of(std::uint64_t address, std::uint64_t bytes);

}  // namespace simcuda::driver
