#include "shim/sharing/idle.h"

#include <algorithm>

#include "shim/sharing/grants.h"

namespace lms::sharing {
namespace {

bool is_unused(const Tenant& tenant, std::chrono::nanoseconds length, std::uint64_t now_ns) {
    const std::uint64_t unused = now_ns - std::min(now_ns, tenant.last_use_ns);
    return unused >= static_cast<std::uint64_t>(length.count());
}

bool wants_more(const Tenant& tenant) {
    return tenant.granted_bytes != 0 && tenant.granted_bytes < tenant.allocated_bytes;
}

}  // namespace

bool gives_all_back(std::span<const Tenant> tenants, std::size_t self, std::chrono::nanoseconds after,
                    std::uint64_t now_ns) {
    if (self >= tenants.size() || tenants[self].resident_bytes == 0) return false;
    if (!is_unused(tenants[self], std::max(after, kIdle), now_ns)) return false;
    for (std::size_t i = 0; i < tenants.size(); ++i)
        if (i != self && wants_more(tenants[i]) && !is_unused(tenants[i], kIdle, now_ns)) return true;
    return false;
}

}  // namespace lms::sharing
