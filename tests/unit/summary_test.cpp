#include "tools/lms/summary.h"

#include <doctest/doctest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "shim/util/units.h"

namespace {

using lms::trace::LivePage;
using lms::util::kMiB;

lms::tool::Pages shared_page(std::uint64_t granted, std::uint64_t least, std::uint64_t wait_ns) {
    lms::tool::Pages pages;
    pages.push_back(std::make_unique<LivePage>());
    lms::trace::LiveGpu& gpu = pages[0]->gpus[1];
    gpu.used = 1;
    gpu.budget_bytes = 16 * kMiB;
    gpu.peak_allocated_bytes = 14 * kMiB;
    gpu.granted_bytes = granted;
    gpu.least_granted_bytes = least;
    gpu.turn_wait_ns = wait_ns;
    return pages;
}

}  // namespace

TEST_CASE("summary: what sharing a GPU cost is told, where it was shared") {
    const auto told = [](const lms::tool::Pages& pages) { return lms::tool::summary(pages, "true", 1); };
    const std::string shared =
        "lms: GPU 1: shared with other processes, which left 5M for up to 14M allocated";
    CHECK(told(shared_page(0, 5 * kMiB, 1'250'000'000)).find(shared + "; threads waited 1.2 s for turns\n") !=
          std::string::npos);
    CHECK(told(shared_page(7 * kMiB, 5 * kMiB, 0)).find(shared + "\n") != std::string::npos);
    CHECK(told(shared_page(0, 0, 0)).find("shared") == std::string::npos);
    const auto gpu = [](const lms::tool::Pages& pages) {
        return nlohmann::json::parse(lms::tool::summary_json(pages, 1))["processes"][0]["gpus"][0];
    };
    const auto cost = gpu(shared_page(7 * kMiB, 5 * kMiB, 9));
    CHECK(cost["granted_bytes"] == 7 * kMiB);
    CHECK(cost["least_granted_bytes"] == 5 * kMiB);
    CHECK(cost["turn_wait_ns"] == 9);
    CHECK(gpu(shared_page(0, 0, 0))["granted_bytes"].is_null());
}
