#include "shim/executor/guards.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "shim/trace/demangle.h"
#include "shim/util/bounds.h"
#include "shim/util/log.h"

namespace lms::executor {
namespace {

struct Found {
    std::atomic<std::uint64_t> compared{0};
    std::atomic<std::uint64_t> changed{0};
    std::atomic<bool> fault{false};
};
constinit Found found;

void tell_verdict() {
    const std::uint64_t compared = found.compared.load(), changed = found.changed.load();
    if (found.fault.load()) log::warn("check: the program failed, in the work named above");
    if (changed > 0) {
        log::warn(
            "check: {} of {} evicted chunks came back changed: run with LMS_SAFETY=strict, or report it",
            changed, compared);
    } else {
        log::warn("check: {} evicted chunks came back intact", compared);
    }
}

}  // namespace

void poison(const Settings& settings, const Block& host) {
    if (poisons_blocks(settings) && host.pinned)
        std::memset(reinterpret_cast<void*>(host.alias), kPoison, host.bytes);
}

std::optional<std::uint64_t> digest_of(const Settings& settings, const Block& host) {
    if (!settings.check || !host.pinned) return std::nullopt;
    return XXH3_64bits(reinterpret_cast<const void*>(host.alias), host.bytes);
}

namespace {

bool has_changed(const Settings& settings, const Block& host, std::optional<std::uint64_t> digest) {
    if (!digest) return false;
    found.compared.fetch_add(1, std::memory_order_relaxed);
    if (digest_of(settings, host) == digest) return false;
    found.changed.fetch_add(1, std::memory_order_relaxed);
    return true;
}

}  // namespace

void compare_digest(const Settings& settings, engine::Address address, const Block& host,
                    std::optional<std::uint64_t> digest) {
    if (has_changed(settings, host, digest))
        log::error("check: the {} bytes at {:#x} changed in host memory while they were evicted", host.bytes,
                   address);
}

void compare_clean(const Settings& settings, engine::Address address, const Block& kept,
                   std::optional<std::uint64_t> digest) {
    if (has_changed(settings, kept, digest))
        log::error(
            "check: GPU work that the shim took for read-only wrote the {} bytes at {:#x}; set LMS_RETAIN=0",
            kept.bytes, address);
}

void name_fault(device::Port& port, const FencePtr& fence, const std::string& what) noexcept try {
    if (fence) wait_for(*fence, bounds::kFault);
    const CUresult status = port.health();
    if (status == CUDA_SUCCESS || !log::once(found.fault)) return;
    log::error(
        "check: {} (or work beside it) failed (error {}): it may have reached an evicted buffer that its "
        "arguments do not name",
        what.empty() ? "a copy or set" : trace::demangled(what), static_cast<int>(status));
} catch (...) {
    // Out of host memory: nothing can be said.
}

void tell_verdict_at_exit(const Settings& settings) {
    static std::atomic<bool> registered;
    if (settings.check && log::once(registered)) std::atexit(tell_verdict);
}

}  // namespace lms::executor
