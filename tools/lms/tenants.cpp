#include "tools/lms/tenants.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "shim/sharing/folder.h"
#include "shim/util/units.h"
#include "tools/lms/printable.h"

namespace lms::tool {
namespace {

using sharing::Seen;
using sharing::Tenant;
using util::format_bytes;

constexpr const char* kTenantRow =
    "{:<12} {:>8} {:<14.14} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>4} {:>8}";
constexpr std::size_t kUuidInRow = 12;  // "GPU-12345678"

constexpr std::string_view kPrefix = "gpu.";
constexpr std::size_t kDigits = 32;

// Of a page's name; empty: it is none.
std::string uuid_in(std::string_view name) {
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kDigits) return {};
    name.remove_prefix(kPrefix.size());
    if (name.find_first_not_of("0123456789abcdef") != name.npos) return {};
    return fmt::format("GPU-{}-{}-{}-{}-{}", name.substr(0, 8), name.substr(8, 4), name.substr(12, 4),
                       name.substr(16, 4), name.substr(20));
}

std::string program_in(const Pages& pages, const trace::ProcessName& process) {
    const auto page = std::ranges::find(pages, process, [](const auto& each) { return each->process; });
    return page == pages.end() ? "" : printable(std::filesystem::path((*page)->program).filename().native());
}

std::uint64_t waits_ns(const Tenant& tenant, std::uint64_t now_ns) {
    return tenant.waiting_since_ns == 0 ? 0 : now_ns - std::min(now_ns, tenant.waiting_since_ns);
}

}  // namespace

std::vector<SharedGpu> look_at_shared_gpus(int process, const Pages& pages) {
    std::vector<SharedGpu> all;
    const char* const path = secure_getenv("LMS_SHARE_DIR");
    const sharing::SharingFolder folder(path == nullptr ? "" : path);
    const int again =
        folder.number() < 0 ? -1 : openat(folder.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(again < 0 ? nullptr : fdopendir(again), closedir);
    while (const dirent* const entry = listing ? readdir(listing.get()) : nullptr) {
        std::string problem;
        const auto name = sharing::page_in_file(entry->d_name);
        SharedGpu gpu{.uuid = name ? uuid_in(*name) : "", .tenants = {}};
        if (gpu.uuid.empty()) continue;
        bool meant = false;
        const auto page = sharing::look_at_page(folder.number(), *name, problem);
        for (const Seen& each : page.tenants) {
            meant |= process == 0 || each.process.number == process;
            gpu.tenants.push_back(
                {each, program_in(pages, each.process), page.takes_turns && each.slot == page.holder});
        }
        if (meant) all.push_back(std::move(gpu));
    }
    std::ranges::sort(all, {}, &SharedGpu::uuid);
    return all;
}

std::vector<std::string> tenants_table(const std::vector<SharedGpu>& gpus, std::uint64_t now_ns) {
    std::vector<std::string> rows{fmt::format(kTenantRow, "SHARED GPU", "PID", "PROGRAM", "WEIGHT", "MIN",
                                              "PRIORITY", "GRANTED", "RESIDENT", "WANTED", "PINNED", "TURN",
                                              "WAITS")};
    for (const SharedGpu& gpu : gpus) {
        if (gpu.tenants.size() < 2) continue;  // alone
        for (const SharedGpu::One& each : gpu.tenants) {
            const Tenant& is = each.seen.tenant;
            const double waits = static_cast<double>(waits_ns(is, now_ns)) / 1e9;
            rows.push_back(fmt::format(kTenantRow, gpu.uuid.substr(0, kUuidInRow), each.seen.process.number,
                                       each.program.empty() ? "-" : each.program, is.weight,
                                       is.least_bytes == 0 ? "-" : format_bytes(is.least_bytes), is.priority,
                                       is.granted_bytes == 0 ? "all" : format_bytes(is.granted_bytes),
                                       format_bytes(is.resident_bytes), format_bytes(is.allocated_bytes),
                                       format_bytes(is.pinned_bytes), each.has_turn ? "yes" : "-",
                                       is.waiting_since_ns == 0 ? "-" : fmt::format("{:.1f} s", waits)));
        }
    }
    if (rows.size() == 1) return {};
    return rows;
}

nlohmann::ordered_json shares_json(const std::vector<SharedGpu>& gpus, const trace::ProcessName& process,
                                   std::uint64_t now_ns) {
    using Json = nlohmann::ordered_json;
    Json shares = Json::array();
    for (const SharedGpu& gpu : gpus) {
        const auto one = std::ranges::find(gpu.tenants, process,
                                           [](const SharedGpu::One& each) { return each.seen.process; });
        if (one == gpu.tenants.end()) continue;
        const Tenant& is = one->seen.tenant;
        shares.push_back({{"gpu", gpu.uuid},
                          {"weight", is.weight},
                          {"min_bytes", is.least_bytes},
                          {"priority", is.priority},
                          {"granted_bytes", is.granted_bytes == 0 ? Json() : Json(is.granted_bytes)},
                          {"resident_bytes", is.resident_bytes},
                          {"wanted_bytes", is.allocated_bytes},
                          {"pinned_bytes", is.pinned_bytes},
                          {"has_turn", one->has_turn},
                          {"waits_ns", waits_ns(is, now_ns)},
                          {"waited_ns", is.waited_ns}});
    }
    return shares;
}

}  // namespace lms::tool
