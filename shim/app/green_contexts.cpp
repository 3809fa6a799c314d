#include "shim/app/green_contexts.h"

#include <algorithm>
#include <map>

#include "shim/app/contexts.h"
#include "shim/util/mutex.h"

namespace lms::engine {
namespace {

// Never destroyed, as that of contexts.
struct GreenContextRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    std::map<CUgreenCtx, GreenContext> greens LMS_GUARDED_BY(mutex);
};

GreenContextRegistry& green_context_registry() {
    static GreenContextRegistry& instance = *new GreenContextRegistry;
    return instance;
}

}  // namespace

void green_made(CUgreenCtx green, CUdevice device) {
    const util::Lock lock(green_context_registry().mutex);
    green_context_registry().greens[green] = {device, nullptr};
    detail::any_green = true;
}

void green_converted(CUgreenCtx green, CUcontext context) {
    const util::Lock lock(green_context_registry().mutex);
    const auto it = green_context_registry().greens.find(green);
    if (it != green_context_registry().greens.end()) it->second.context = context;
}

std::optional<GreenContext> find_green(CUgreenCtx green) {
    const util::Lock lock(green_context_registry().mutex);
    const auto it = green_context_registry().greens.find(green);
    if (it == green_context_registry().greens.end()) return std::nullopt;
    return it->second;
}

void forget_green(CUgreenCtx green) {
    const util::Lock lock(green_context_registry().mutex);
    green_context_registry().greens.erase(green);
}

CUcontext owner_of(CUcontext context) {
    if (!any_green()) return context;
    CUdevice device = CU_DEVICE_INVALID;
    {
        const util::Lock lock(green_context_registry().mutex);
        const auto it = std::ranges::find_if(green_context_registry().greens, [&](const auto& each) {
            return each.second.context == context;
        });
        if (it == green_context_registry().greens.end()) return context;
        device = it->second.device;
    }
    const CUcontext primary = primary_of(device);
    return primary ? primary : context;
}

}  // namespace lms::engine
