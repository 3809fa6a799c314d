// From a C++ class to the table of functions in <lms/policy.h>, for the policies that live here.
#pragma once

#include <lms/policy.h>

#include <cstdint>
#include <new>

namespace lms::policy {

inline std::uint64_t share_of(std::uint64_t bytes, double share) {
    return share >= 1 ? bytes : static_cast<std::uint64_t>(static_cast<double>(bytes) * share);
}

// Calls `call`. If it runs out of memory its event is lost, and the answer is `otherwise`.
template <typename Answer, typename Call>
Answer unless_out_of_memory(Answer otherwise, Call&& call) {
    try {
        return call();
    } catch (const std::bad_alloc&) {
        return otherwise;
    }
}

template <typename Policy>
constexpr auto work_of() -> decltype(lms_policy::work) {
    if constexpr (requires(Policy & policy, const lms_policy_work& work) { policy.work(work); }) {
        return [](void* state, const lms_policy_work* work) {
            unless_out_of_memory(0, [&] { return static_cast<Policy*>(state)->work(*work), 0; });
        };
    } else {
        return nullptr;
    }
}

template <typename Policy>
constexpr auto upcoming_of() -> decltype(lms_policy::upcoming) {
    if constexpr (requires(Policy & policy, std::uint32_t * out) { policy.upcoming(out, 1u); }) {
        return [](void* state, std::uint32_t* chunks, std::uint32_t most) {
            return unless_out_of_memory<std::uint32_t>(
                0, [&] { return static_cast<Policy*>(state)->upcoming(chunks, most); });
        };
    } else {
        return nullptr;
    }
}

template <typename Policy>
constexpr auto leaving_of() -> decltype(lms_policy::leaving) {
    if constexpr (requires(Policy & policy, const lms_policy_request& request) { policy.leaving(request); }) {
        return [](void* state, const lms_policy_request* request) {
            return unless_out_of_memory<std::uint32_t>(
                LMS_NO_CHUNK, [&] { return static_cast<Policy*>(state)->leaving(*request); });
        };
    } else {
        return nullptr;
    }
}

template <typename Policy>
constexpr auto freed_of() -> decltype(lms_policy::freed) {
    if constexpr (requires(Policy & policy) { policy.freed(0u); }) {
        return [](void* state, std::uint32_t chunk) { static_cast<Policy*>(state)->freed(chunk); };
    } else {
        return nullptr;
    }
}

// Policy has a noexcept constructor from lms_policy_config and the methods called below; `work`, `upcoming`,
// `freed` and `leaving` where it wants them. A chunk that could not be added is never chosen.
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
                return static_cast<Policy*>(state)->eviction_start(*pressure);
            },
        .added =
            [](void* state, const lms_policy_chunk* chunk) {
                unless_out_of_memory(0, [&] { return static_cast<Policy*>(state)->added(*chunk), 0; });
            },
        .removed = [](void* state, std::uint32_t chunk) { static_cast<Policy*>(state)->removed(chunk); },
        .used = [](void* state, const lms_policy_use* use) { static_cast<Policy*>(state)->used(*use); },
        .resident =
            [](void* state, std::uint32_t chunk) {
                unless_out_of_memory(0, [&] { return static_cast<Policy*>(state)->resident(chunk), 0; });
            },
        .evicted = [](void* state, std::uint32_t chunk) { static_cast<Policy*>(state)->evicted(chunk); },
        .next_victim =
            [](void* state, const lms_policy_request* request) {
                return unless_out_of_memory<std::uint32_t>(
                    LMS_NO_CHUNK, [&] { return static_cast<Policy*>(state)->next_victim(*request); });
            },
        .work = work_of<Policy>(),
        .upcoming = upcoming_of<Policy>(),
        .keys = nullptr,
        .freed = freed_of<Policy>(),
        .leaving = leaving_of<Policy>(),
    };
}

}  // namespace lms::policy
