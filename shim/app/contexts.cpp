#include "shim/app/contexts.h"
#include "shim/util/bounds.h"
#include "shim/util/mutex.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

namespace lms::engine {

namespace {

struct Known {
    CUcontext context;
    CUdevice device;
};

struct Ending {
    CUcontext context;
    CUdevice device;
    std::thread::id thread;
    bool left = false;  // the shim has found no other to work through
    bool closed = false;
    bool gone = false;
};

// Never destroyed: contexts are destroyed by other libraries' exit handlers too.
struct ContextRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    std::vector<Known> contexts LMS_GUARDED_BY(mutex);
    std::map<CUdevice, CUcontext> primaries LMS_GUARDED_BY(mutex);
    std::set<std::pair<CUdevice, CUdevice>> peers LMS_GUARDED_BY(mutex);  // owner, who may reach it
    std::set<CUcontext> leading_elsewhere LMS_GUARDED_BY(mutex);
    std::vector<Ending> ending LMS_GUARDED_BY(mutex);
    util::Condition ended;
    std::multiset<CUcontext> used LMS_GUARDED_BY(mutex);
    util::Condition unused;

    bool is_ending(CUcontext context) const LMS_REQUIRES(mutex) {
        return std::ranges::find(ending, context, &Ending::context) != ending.end();
    }
    CUcontext another(CUdevice device, CUcontext other) const LMS_REQUIRES(mutex) {
        CUcontext found = nullptr;
        for (const Known& known : contexts) {
            if (known.device != device || known.context == other) continue;
            if (!is_ending(known.context)) return known.context;
            if (!found) found = known.context;
        }
        return found;
    }
};

ContextRegistry& context_registry() {
    static ContextRegistry& instance = *new ContextRegistry;
    return instance;
}

// Which ContextEnd of the calling thread's that is.
auto own(ContextRegistry& all, CUcontext context) LMS_REQUIRES(all.mutex) {
    return std::ranges::find_if(all.ending, [&](const Ending& each) {
        return each.context == context && each.thread == std::this_thread::get_id();
    });
}

bool seen(CUcontext context) LMS_REQUIRES(context_registry().mutex) {
    return std::ranges::any_of(context_registry().contexts,
                               [&](const Known& k) { return k.context == context; });
}

}  // namespace

void context_seen(CUcontext context, CUdevice device) {
    const util::Lock lock(context_registry().mutex);
    if (!seen(context)) context_registry().contexts.push_back({context, device});
}

void primary_seen(CUcontext context, CUdevice device) {
    context_seen(context, device);
    const util::Lock lock(context_registry().mutex);
    context_registry().primaries[device] = context;
}

CUcontext primary_of(CUdevice device) {
    const util::Lock lock(context_registry().mutex);
    const auto it = context_registry().primaries.find(device);
    return it == context_registry().primaries.end() ? nullptr : it->second;
}

void forget_context(CUcontext context) {
    const util::Lock lock(context_registry().mutex);
    std::erase_if(context_registry().contexts, [&](const Known& known) { return known.context == context; });
    context_registry().leading_elsewhere.erase(context);
    std::erase_if(context_registry().primaries, [&](const auto& entry) { return entry.second == context; });
}

bool is_known(CUcontext context) {
    const util::Lock lock(context_registry().mutex);
    return seen(context);
}

std::vector<CUcontext> known_contexts() {
    const util::Lock lock(context_registry().mutex);
    std::vector<CUcontext> contexts;
    for (const Known& known : context_registry().contexts) contexts.push_back(known.context);
    return contexts;
}

std::vector<CUcontext> known_contexts_of(CUdevice device) {
    const util::Lock lock(context_registry().mutex);
    std::vector<CUcontext> contexts;
    for (const Known& known : context_registry().contexts) {
        if (known.device == device) contexts.push_back(known.context);
    }
    return contexts;
}

bool may_reach(CUcontext context, CUdevice owner) {
    ContextRegistry& all = context_registry();
    const util::Lock lock(all.mutex);
    const auto it = std::ranges::find_if(all.contexts, [&](const Known& k) { return k.context == context; });
    return it == all.contexts.end() || it->device == owner || all.peers.contains({owner, it->device});
}

bool may_lead_to(CUcontext context, CUdevice owner) {
    if (may_reach(context, owner)) return true;
    const util::Lock lock(context_registry().mutex);
    return context_registry().leading_elsewhere.contains(context);
}

void leads_elsewhere(CUcontext context) {
    const util::Lock lock(context_registry().mutex);
    context_registry().leading_elsewhere.insert(context);
}

void peer_admitted(CUdevice owner, CUdevice device) {
    const util::Lock lock(context_registry().mutex);
    context_registry().peers.emplace(owner, device);
}

std::vector<CUdevice> peers_of(CUdevice owner) {
    const util::Lock lock(context_registry().mutex);
    std::vector<CUdevice> devices;
    for (const auto& [of, device] : context_registry().peers) {
        if (of == owner) devices.push_back(device);
    }
    return devices;
}

CUcontext another_context(CUdevice device, CUcontext other) {
    const util::Lock lock(context_registry().mutex);
    return context_registry().another(device, other);
}

ContextEnd::ContextEnd(CUcontext context, CUdevice device) : context_(context), device_(device) {
    const std::thread::id self = std::this_thread::get_id();
    ContextRegistry& all = context_registry();
    util::Lock lock(all.mutex);
    all.ended.wait_for(lock, bounds::kOtherThread, [&]() LMS_REQUIRES(all.mutex) {
        // A green context's may end within the primary one's.
        return std::ranges::none_of(all.ending, [&](const Ending& each) LMS_REQUIRES(all.mutex) {
            return each.device == device && each.thread != self;
        });
    });
    all.ending.push_back({context, device, self});
}

ContextEnd::~ContextEnd() {
    ContextRegistry& all = context_registry();
    {
        const util::Lock lock(all.mutex);
        all.ending.erase(own(all, context_));
    }
    all.ended.notify_all();
}

CUcontext ContextEnd::successor() {
    ContextRegistry& all = context_registry();
    const util::Lock lock(all.mutex);
    const CUcontext another = all.another(device_, context_);
    own(all, context_)->left = !another;
    return another;
}

void ContextEnd::close() {
    ContextRegistry& all = context_registry();
    util::Lock lock(all.mutex);
    own(all, context_)->closed = true;
    all.unused.wait_for(lock, bounds::kOtherThread,
                        [&]() LMS_REQUIRES(all.mutex) { return !all.used.contains(context_); });
}

ContextUse::ContextUse(CUcontext context) : context_(context) {
    ContextRegistry& all = context_registry();
    const util::Lock lock(all.mutex);
    used_ = std::ranges::none_of(all.ending, [&](const Ending& each) LMS_REQUIRES(all.mutex) {
        return each.context == context && each.closed;
    });
    if (used_) all.used.insert(context);
}

ContextUse::~ContextUse() {
    if (!used_) return;
    ContextRegistry& all = context_registry();
    {
        const util::Lock lock(all.mutex);
        all.used.erase(all.used.find(context_));
    }
    all.unused.notify_all();
}

void ContextEnd::is_gone() {
    ContextRegistry& all = context_registry();
    const util::Lock lock(all.mutex);
    own(all, context_)->gone = true;
}

bool is_left_to_end(CUcontext context) {
    ContextRegistry& all = context_registry();
    const util::Lock lock(all.mutex);
    return std::ranges::any_of(all.ending, [&](const Ending& each) LMS_REQUIRES(all.mutex) {
        return each.context == context && each.left;
    });
}

void new_context_seen(CUcontext context, CUdevice device) {
    ContextRegistry& all = context_registry();
    util::Lock lock(all.mutex);
    const auto is_in_the_way = [&](const Ending& each) LMS_REQUIRES(all.mutex) {
        return each.context == context || (each.device == device && !all.another(device, each.context));
    };
    all.ended.wait_for(lock, bounds::kOtherThread, [&]() LMS_REQUIRES(all.mutex) {
        return std::ranges::none_of(all.ending, is_in_the_way);
    });
    // To be forgotten waits for nobody.
    all.ended.wait(lock, [&]() LMS_REQUIRES(all.mutex) {
        return std::ranges::none_of(all.ending, [&](const Ending& each) LMS_REQUIRES(all.mutex) {
            return each.gone && is_in_the_way(each);
        });
    });
    if (std::ranges::find(all.contexts, context, &Known::context) == all.contexts.end())
        all.contexts.push_back({context, device});
}

}  // namespace lms::engine
