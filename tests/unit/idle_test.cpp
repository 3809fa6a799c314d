#include "shim/sharing/idle.h"

#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <vector>

#include "shim/sharing/grants.h"

namespace {

using namespace lms::sharing;
using namespace std::chrono_literals;

constexpr std::uint64_t kIdleNow = 100'000'000'000;
constexpr std::uint64_t idle_since(std::chrono::nanoseconds ago) {
    return kIdleNow - static_cast<std::uint64_t>(ago.count());
}

// One that has not used the GPU for so long, and one that uses it and wants more than it may fill.
std::vector<Tenant> idle_and_busy(std::chrono::nanoseconds unused) {
    return {{.allocated_bytes = 10,
             .resident_bytes = 10,
             .granted_bytes = 10,
             .least_bytes = 10,
             .last_use_ns = idle_since(unused)},
            {.allocated_bytes = 20, .resident_bytes = 6, .granted_bytes = 6, .last_use_ns = idle_since(1ms)}};
}

}  // namespace

TEST_CASE("idle: all goes after so long without use, where another wants the room") {
    CHECK(gives_all_back(idle_and_busy(30s), 0, 30s, kIdleNow));
    CHECK_FALSE(gives_all_back(idle_and_busy(30s - 1ns), 0, 30s, kIdleNow));
    CHECK_FALSE(gives_all_back(idle_and_busy(30s), 1, 30s, kIdleNow));
    CHECK_FALSE(gives_all_back(idle_and_busy(30s), 2, 30s, kIdleNow));
    // A pause between two requests is none.
    CHECK_FALSE(gives_all_back(idle_and_busy(kIdle - 1ns), 0, 0s, kIdleNow));
    CHECK(gives_all_back(idle_and_busy(kIdle), 0, 0s, kIdleNow));
}

TEST_CASE("idle: nothing goes where nobody wants it") {
    auto tenants = idle_and_busy(60s);
    tenants.pop_back();
    CHECK_FALSE(gives_all_back(tenants, 0, 30s, kIdleNow));  // alone
    tenants = idle_and_busy(60s);
    tenants[1].granted_bytes = 20;  // has all that it wants
    CHECK_FALSE(gives_all_back(tenants, 0, 30s, kIdleNow));
    tenants[1].granted_bytes = 0;  // has come just now
    CHECK_FALSE(gives_all_back(tenants, 0, 30s, kIdleNow));
    tenants = idle_and_busy(60s);
    tenants[1].last_use_ns = idle_since(kIdle);  // idle itself
    CHECK_FALSE(gives_all_back(tenants, 0, 30s, kIdleNow));
    tenants = idle_and_busy(60s);
    tenants[0].resident_bytes = 0;  // gone already
    CHECK_FALSE(gives_all_back(tenants, 0, 30s, kIdleNow));
    tenants = idle_and_busy(60s);
    tenants[0].last_use_ns = kIdleNow + 1;  // of a clock that is ahead
    CHECK_FALSE(gives_all_back(tenants, 0, 30s, kIdleNow));
}

TEST_CASE("idle: of any tenants none that uses the GPU gives all back, and none for those that are idle") {
    for (unsigned seed = 0; seed < 2000; ++seed) {
        std::mt19937_64 random(seed);
        std::vector<Tenant> tenants(1 + random() % 5);
        for (Tenant& each : tenants) {
            each = {.allocated_bytes = random() % 4,
                    .resident_bytes = random() % 4,
                    .granted_bytes = random() % 4,
                    .last_use_ns = idle_since((random() % 60) * 1s)};
        }
        bool wanted = false;
        for (const Tenant& each : tenants)
            wanted |= each.last_use_ns > idle_since(kIdle) && each.granted_bytes > 0 &&
                      each.granted_bytes < each.allocated_bytes;
        for (std::size_t i = 0; i < tenants.size(); ++i) {
            const bool idle = tenants[i].last_use_ns <= idle_since(30s);
            CHECK(gives_all_back(tenants, i, 30s, kIdleNow) ==
                  (wanted && idle && tenants[i].resident_bytes > 0));
        }
    }
}
