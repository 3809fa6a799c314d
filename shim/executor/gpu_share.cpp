#include "shim/executor/gpu_share.h"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <vector>

#include "shim/sharing/folder.h"
#include "shim/sharing/grants.h"
#include "shim/util/bounds.h"
#include "shim/util/log.h"
#include "shim/util/units.h"

namespace lms::shim {
namespace {

util::Clock::rep now() {
    return util::Clock::now().time_since_epoch().count();
}

// What moves meanwhile changes the sum of what all have by so much: such differences are no news.
std::uint64_t tolerance(std::uint64_t capacity_bytes) {
    return capacity_bytes / 32;
}

bool differs(std::uint64_t a, std::uint64_t b, std::uint64_t by) {
    return (a > b ? a - b : b - a) > by;
}

std::string name_of(std::span<const char, 16> uuid) {
    std::string name = "gpu.";
    for (const char byte : uuid) name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return name;
}

}  // namespace

std::unique_ptr<GpuShare> GpuShare::open(int device, std::span<const char, 16> uuid,
                                         const util::ShareTerms& terms, const std::string& path) noexcept
    try {
    if (!terms.shares) return nullptr;
    const sharing::SharingFolder folder(path);
    std::string problem = folder.problem();
    std::unique_ptr<sharing::SharingPage> page;
    if (problem.empty()) {
        const std::string name = name_of(uuid);
        page = sharing::SharingPage::open(folder.number(), name, problem);
        if (page && !page->write({.weight = terms.weight, .priority = terms.priority}))
            problem = "has no free slot";
        if (!problem.empty()) problem = fmt::format("its page {} {}", name, problem);
    }
    if (!problem.empty()) {
        log::warn("GPU {} is not shared: {}; other processes do not make room", device, problem);
        return nullptr;
    }
    page->announce();
    return std::unique_ptr<GpuShare>(new GpuShare(device, std::move(page), terms));
} catch (const std::exception&) {
    return nullptr;  // out of host memory: as if it were alone
}

void GpuShare::set_terms(const util::ShareTerms& terms) noexcept {
    weight_ = terms.weight;
    priority_ = terms.priority;
    least_bytes_ = terms.least_bytes;
    page_->announce();
}

bool GpuShare::is_due() const noexcept {
    if (page_->changes().load(std::memory_order_relaxed) != seen_changes_.load(std::memory_order_relaxed))
        return true;
    return shared_.load(std::memory_order_relaxed) && now() >= next_look_.load(std::memory_order_relaxed);
}

std::uint64_t GpuShare::look(const Levels& own) noexcept try {
    if (looking_.exchange(true)) return own.granted_bytes;
    const struct Over {
        ~Over() { looking = false; }
        std::atomic<bool>& looking;
    } over{looking_};
    return grant_of(own);
} catch (const std::exception&) {
    return own.granted_bytes;  // out of host memory
}

std::uint64_t GpuShare::grant_of(const Levels& own) {
    seen_changes_ = page_->changes().load();
    next_look_ = now() + std::chrono::nanoseconds(bounds::kShareLook).count();
    const auto now_ns = static_cast<std::uint64_t>(now());
    page_->write({.allocated_bytes = own.allocated_bytes,
                  .resident_bytes = own.held_bytes,
                  .granted_bytes = own.granted_bytes,
                  .pinned_bytes = own.pinned_bytes,
                  .least_bytes = least_bytes_,
                  .weight = weight_,
                  .priority = priority_,
                  .last_use_ns = now_ns});
    std::vector<sharing::Tenant> tenants;
    std::size_t self = 0;
    bool found = false;
    std::uint64_t capacity = own.free_bytes;
    for (const sharing::Seen& seen : page_->tenants()) {
        if (page_->is_own(seen)) {
            self = tenants.size();
            found = true;
        }
        capacity += seen.tenant.resident_bytes;
        tenants.push_back(seen.tenant);
    }
    const bool shared = found && tenants.size() > 1;
    if (shared_.exchange(shared) != shared) {
        log::info("GPU {} is {}", device_,
                  shared ? fmt::format("shared by {} processes under the shim", tenants.size())
                         : "no other process's under the shim any more");
    }
    if (!shared) {
        if (own.granted_bytes != 0) page_->announce();  // and says so at the next look
        return 0;
    }
    const std::uint64_t grant = sharing::grants(tenants, capacity, now_ns)[self];
    if (differs(own.allocated_bytes, announced_bytes_, tolerance(capacity))) {
        announced_bytes_ = own.allocated_bytes;
        page_->announce();
        seen_changes_ = page_->changes().load();
    }
    if (own.granted_bytes != 0 && !differs(grant, own.granted_bytes, tolerance(capacity)))
        return own.granted_bytes;
    log::debug("GPU {}: this process may fill {} of {}", device_, util::format_bytes(grant),
               util::format_bytes(capacity));
    return std::max<std::uint64_t>(grant, 1);  // 0 means alone
}

}  // namespace lms::shim
