// How much device and host memory there is to take.
#include <algorithm>

#include "shim/engine/chunking.h"
#include "shim/engine/engine.h"

namespace lms::engine {

namespace {

std::uint64_t minus(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : 0;
}

}  // namespace

std::uint64_t Engine::eviction_start() const {
    return std::min(residency_.eviction_start(budget_bytes_), budget_bytes_);
}

Engine::Room Engine::device_room(std::uint64_t bytes, std::uint64_t limit, bool recovered) {
    using Is = Room::Is;
    if (residency_.device_bytes() + bytes > limit) return {Is::None};
    if (const auto block = device_pool_.take(bytes)) return {Is::Taken, *block};
    if (device_pool_.held_bytes() + bytes <= budget_bytes_) return {Is::Create};
    if (!recovered) return {Is::Recover};
    const std::uint64_t excess = device_pool_.held_bytes() + bytes - budget_bytes_;
    if (device_pool_.free_bytes() < excess) return {Is::None};
    return {.is = Is::Trim, .bytes = excess};
}

// Through which the last chunks change places. Buffers keep the chunks that they were cut into when the
// budget was larger.
std::uint64_t Engine::way_bytes() const {
    return 2 * std::max(largest_chunk(budget_bytes_, options_.granularity), largest_cut_);
}

std::uint64_t Engine::capacity_bytes() const {
    return minus(budget_bytes_ + host_limit_bytes(), way_bytes());
}

std::uint64_t Engine::promised_host_bytes(std::uint64_t allocated) const {
    return allocated == 0 ? 0 : minus(allocated + way_bytes(), budget_bytes_);
}

std::uint64_t Engine::host_bytes(std::uint64_t spare_bytes) const {
    const std::uint64_t given = host_pool_.held_bytes() + spare_bytes;
    return std::min(std::max(given, promised_host_bytes(residency_.allocated_bytes())), host_limit_bytes());
}

std::uint64_t Engine::least_budget(std::uint64_t spare_bytes) const {
    const std::uint64_t allocated = residency_.allocated_bytes();
    if (allocated == 0) return 0;
    const std::uint64_t spare = host_pool_.held_bytes() + spare_bytes;
    return minus(allocated + 2 * largest_cut_, std::min(spare, host_limit_bytes()));
}

}  // namespace lms::engine
