// Processes that share GPUs, as the pages say in which they find each other (shim/sharing/page.h).
#pragma once

#include <string>
#include <vector>

#include "shim/sharing/page.h"
#include "tools/lms/pages.h"

namespace lms::tool {

struct SharedGpu {
    struct One {
        sharing::Seen seen;
        std::string program;  // empty: not known
        bool has_turn;
    };
    std::string uuid;  // as NVIDIA's tools write it: "GPU-12345678-..."
    std::vector<One> tenants;
};

// GPUs with a page, by their UUIDs, as they are now: all, or those that `process` is on. A page that is not
// used, or has nobody on it, is left out. Programs' names are of `pages`.
std::vector<SharedGpu> look_at_shared_gpus(int process, const Pages& pages = {});

// A line for each tenant of each, below one of headings; empty: there is none.
std::vector<std::string> tenants_table(const std::vector<SharedGpu>& gpus, std::uint64_t now_ns);

// On which GPUs a process is, and on what terms: an array.
nlohmann::ordered_json shares_json(const std::vector<SharedGpu>& gpus, const trace::ProcessName& process,
                                   std::uint64_t now_ns);

}  // namespace lms::tool
