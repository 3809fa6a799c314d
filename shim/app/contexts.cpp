#include "shim/app/contexts.h"
#include "shim/util/mutex.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

namespace lms::engine {

namespace {

struct Known {
    CUcontext context;
    CUdevice device;
};

// Never destroyed: contexts are destroyed by other libraries' exit handlers too.
struct Registry {
    util::Mutex mutex{util::LockOrder::Table};
    std::vector<Known> contexts LMS_GUARDED_BY(mutex);
    std::map<CUdevice, CUcontext> primaries LMS_GUARDED_BY(mutex);
    std::set<std::pair<CUdevice, CUdevice>> peers LMS_GUARDED_BY(mutex);  // owner, who may reach it
    std::set<CUcontext> leading_elsewhere LMS_GUARDED_BY(mutex);
    std::vector<Known> ending LMS_GUARDED_BY(mutex);
    util::Condition ended;
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

bool seen(CUcontext context) LMS_REQUIRES(registry().mutex) {
    return std::ranges::any_of(registry().contexts, [&](const Known& k) { return k.context == context; });
}

}  // namespace

void context_seen(CUcontext context, CUdevice device) {
    const util::Lock lock(registry().mutex);
    if (!seen(context)) registry().contexts.push_back({context, device});
}

void primary_seen(CUcontext context, CUdevice device) {
    context_seen(context, device);
    const util::Lock lock(registry().mutex);
    registry().primaries[device] = context;
}

CUcontext primary_of(CUdevice device) {
    const util::Lock lock(registry().mutex);
    const auto it = registry().primaries.find(device);
    return it == registry().primaries.end() ? nullptr : it->second;
}

void forget_context(CUcontext context) {
    const util::Lock lock(registry().mutex);
    std::erase_if(registry().contexts, [&](const Known& known) { return known.context == context; });
    registry().leading_elsewhere.erase(context);
    std::erase_if(registry().primaries, [&](const auto& entry) { return entry.second == context; });
}

bool is_known(CUcontext context) {
    const util::Lock lock(registry().mutex);
    return seen(context);
}

std::vector<CUcontext> known_contexts() {
    const util::Lock lock(registry().mutex);
    std::vector<CUcontext> contexts;
    for (const Known& known : registry().contexts) contexts.push_back(known.context);
    return contexts;
}

bool may_reach(CUcontext context, CUdevice owner) {
    Registry& all = registry();
    const util::Lock lock(all.mutex);
    const auto it = std::ranges::find_if(all.contexts, [&](const Known& k) { return k.context == context; });
    return it == all.contexts.end() || it->device == owner || all.peers.contains({owner, it->device});
}

bool may_lead_to(CUcontext context, CUdevice owner) {
    if (may_reach(context, owner)) return true;
    const util::Lock lock(registry().mutex);
    return registry().leading_elsewhere.contains(context);
}

void leads_elsewhere(CUcontext context) {
    const util::Lock lock(registry().mutex);
    registry().leading_elsewhere.insert(context);
}

void peer_admitted(CUdevice owner, CUdevice device) {
    const util::Lock lock(registry().mutex);
    registry().peers.emplace(owner, device);
}

std::vector<CUdevice> peers_of(CUdevice owner) {
    const util::Lock lock(registry().mutex);
    std::vector<CUdevice> devices;
    for (const auto& [of, device] : registry().peers) {
        if (of == owner) devices.push_back(device);
    }
    return devices;
}

CUcontext another_context(CUdevice device, CUcontext other) {
    const util::Lock lock(registry().mutex);
    for (const Known& known : registry().contexts) {
        if (known.device == device && known.context != other) return known.context;
    }
    return nullptr;
}

ContextEnd::ContextEnd(CUcontext context, CUdevice device) : context_(context) {
    const util::Lock lock(registry().mutex);
    registry().ending.push_back({context, device});
}

ContextEnd::~ContextEnd() {
    Registry& all = registry();
    {
        const util::Lock lock(all.mutex);
        all.ending.erase(std::ranges::find(all.ending, context_, &Known::context));
    }
    all.ended.notify_all();
}

void await_end_of_last(CUcontext context, CUdevice device) {
    Registry& all = registry();
    util::Lock lock(all.mutex);
    all.ended.wait_for(lock, std::chrono::seconds(1), [&] {
        return std::ranges::none_of(all.ending, [&](const Known& each) {
            const auto is_another = [&](const Known& known) {
                return known.device == device && known.context != each.context;
            };
            return each.context == context ||
                   (each.device == device && std::ranges::none_of(all.contexts, is_another));
        });
    });
}

}  // namespace lms::engine
