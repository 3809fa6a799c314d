// From a C++ class to the table of functions in <lms/policy.h>, for the policies that live here.
#pragma once

#include <lms/policy.h>

#include <cstdint>
#include <new>

namespace lms::policy {

inline std::uint64_t share_of(std::uint64_t bytes, double share) {
    return share >= 1 ? bytes : static_cast<std::uint64_t>(static_cast<double>(bytes) * share);
}

// Policy has a noexcept constructor from lms_policy_config and the methods called below. Those that may run
// out of memory are `added` alone; a chunk that could not be added is then never chosen.
template <typename Policy>
constexpr lms_policy table_of(const char* name) {
    return {
        .size = sizeof(lms_policy),
        .abi_version = LMS_POLICY_ABI_VERSION,
        .name = name,
        .create = [](const lms_policy_config* config) -> void* { return new (std::nothrow) Policy(*config); },
        .destroy = [](void* state) { delete static_cast<Policy*>(state); },
        .is_managed = [](void* state, std::uint64_t bytes) -> int {
            return static_cast<const Policy*>(state)->is_managed(bytes);
        },
        .eviction_start =
            [](void* state, const lms_policy_pressure* pressure) {
                return static_cast<const Policy*>(state)->eviction_start(*pressure);
            },
        .added =
            [](void* state, const lms_policy_chunk* chunk) {
                try {
                    static_cast<Policy*>(state)->added(*chunk);
                } catch (const std::bad_alloc&) {
                }
            },
        .removed = [](void* state, std::uint32_t chunk) { static_cast<Policy*>(state)->removed(chunk); },
        .used = [](void* state, const lms_policy_use* use) { static_cast<Policy*>(state)->used(*use); },
        .resident = [](void* state, std::uint32_t chunk) { static_cast<Policy*>(state)->resident(chunk); },
        .evicted = [](void* state, std::uint32_t chunk) { static_cast<Policy*>(state)->evicted(chunk); },
        .next_victim =
            [](void* state, const lms_policy_request* request) {
                return static_cast<const Policy*>(state)->next_victim(*request);
            },
    };
}

}  // namespace lms::policy
