// How much of a GPU each process may fill. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "shim/sharing/tenant.h"

namespace lms::sharing {

// A process that has not used the GPU for so long is idle.
inline constexpr std::chrono::nanoseconds kIdle = std::chrono::milliseconds(500);

// Bytes for each tenant, in their order; together at most `capacity_bytes`. May throw std::bad_alloc.
//
// - Each tenant keeps its least bytes, as far as it has allocated them; if those do not fit, a part of them.
// - Tenants that use the GPU have equal bytes for each unit of weight, at most what they have allocated.
// - Idle tenants have the rest, by the same rule.
// - If all have what they have allocated, the remainder goes by weight to those that use the GPU, to grow
// into.
std::vector<std::uint64_t> grants(std::span<const Tenant> tenants, std::uint64_t capacity_bytes,
                                  std::uint64_t now_ns);

// The same while they take turns (turns.h), which `holder` has: beyond what is kept for each, the holder has
// what it has allocated, then those that wait have theirs, in the order of their turns, then those that use
// the GPU, then the idle ones. The holder grows into the remainder.
std::vector<std::uint64_t> grants_in_turn(std::span<const Tenant> tenants, std::size_t holder,
                                          std::uint64_t capacity_bytes, std::uint64_t now_ns);

}  // namespace lms::sharing
