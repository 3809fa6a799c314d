// When a program that has stopped using a GPU gives back all that it has there. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/sharing/tenant.h"

namespace lms::sharing {

// Whether `self` is to: it has not used the GPU for `after`, has memory there, and another that uses the GPU
// may not fill what it wants. What is kept for it (Tenant::least_bytes) goes too.
bool gives_all_back(std::span<const Tenant> tenants, std::size_t self, std::chrono::nanoseconds after,
                    std::uint64_t now_ns);

}  // namespace lms::sharing
