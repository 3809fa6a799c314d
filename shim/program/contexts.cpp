#include "shim/program/contexts.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "shim/util/bounds.h"
#include "shim/util/mutex.h"

namespace lms::program {

// Guarded by the table's lock.
struct ContextEnd::State {
    CUcontext context;
    CUdevice device;
    std::thread::id thread = std::this_thread::get_id();
    bool left = false;  // the shim has found no other to work through
    bool gone = false;
};

namespace {

struct ContextTable : Contexts {
    std::set<std::pair<CUdevice, CUdevice>> peers LMS_GUARDED_BY(mutex);  // owner, who may reach it
    std::vector<ContextEnd::State*> ending LMS_GUARDED_BY(mutex);
    std::uint64_t seen LMS_GUARDED_BY(mutex) = 0;  // ever

    void see(CUcontext context, CUdevice device) LMS_REQUIRES(mutex) {
        Context& known = find_or_enter(context);
        if (known.device) return;
        known.device = device;
        known.seen = ++seen;
    }
    // Those of `device`, or of all; in the order in which they were seen.
    std::vector<CUcontext> of(std::optional<CUdevice> device) LMS_REQUIRES(mutex) {
        std::vector<std::pair<std::uint64_t, CUcontext>> found;
        each([&](CUcontext context, const Context& known) {
            if (known.device && known.device == device.value_or(*known.device))
                found.emplace_back(known.seen, context);
        });
        std::ranges::sort(found);
        std::vector<CUcontext> contexts;
        for (const auto& [seen_as, context] : found) contexts.push_back(context);
        return contexts;
    }
    template <typename Is>
    bool any_ending(Is&& is) LMS_REQUIRES(mutex) {
        return std::ranges::any_of(
            ending, is, [](ContextEnd::State * each) -> auto& { return *each; });
    }
    CUcontext another(CUdevice device, CUcontext other) LMS_REQUIRES(mutex) {
        std::vector<CUcontext> others = of(device);
        std::erase(others, other);
        const auto stays = std::ranges::find_if(others, [&](CUcontext context) LMS_REQUIRES(mutex) {
            return !any_ending([&](const ContextEnd::State& end) { return end.context == context; });
        });
        if (stays != others.end()) return *stays;
        return others.empty() ? nullptr : others.front();
    }
    bool may_reach(CUcontext context, CUdevice owner) LMS_REQUIRES(mutex) {
        const Context* const known = find(context);
        return !known || !known->device || known->device == owner || peers.contains({owner, *known->device});
    }
};

ContextTable& contexts() {
    return only<ContextTable>();
}

// One that nobody has seen can be in use too.
ContextTable& contexts_with(CUcontext context) {
    const util::Lock lock(contexts().mutex);
    contexts().find_or_enter(context);
    return contexts();
}

}  // namespace

void context_seen(CUcontext context, CUdevice device) {
    const util::Lock lock(contexts().mutex);
    contexts().see(context, device);
}

void primary_seen(CUcontext context, CUdevice device) {
    const util::Lock lock(contexts().mutex);
    contexts().see(context, device);
    contexts().each([&](CUcontext each, Context& known) {
        if (known.device == device) known.is_primary = each == context;
    });
}

CUcontext primary_of(CUdevice device) {
    const util::Lock lock(contexts().mutex);
    CUcontext primary = nullptr;
    contexts().each([&](CUcontext each, const Context& known) {
        if (known.device == device && known.is_primary) primary = each;
    });
    return primary;
}

void forget_context(CUcontext context) {
    const util::Lock lock(contexts().mutex);
    // While it ends the entry stays, or others would be granted its use.
    if (Context* const known = contexts().find(context)) *known = {};
}

std::vector<CUcontext> known_contexts() {
    const util::Lock lock(contexts().mutex);
    return contexts().of(std::nullopt);
}

std::vector<CUcontext> known_contexts_of(CUdevice device) {
    const util::Lock lock(contexts().mutex);
    return contexts().of(device);
}

bool may_reach(CUcontext context, CUdevice owner) {
    const util::Lock lock(contexts().mutex);
    return contexts().may_reach(context, owner);
}

bool may_lead_to(CUcontext context, CUdevice owner) {
    const util::Lock lock(contexts().mutex);
    return contexts().may_reach(context, owner) || contexts().find(context)->leads_elsewhere;
}

void leads_elsewhere(CUcontext context) {
    const util::Lock lock(contexts().mutex);
    contexts().find_or_enter(context).leads_elsewhere = true;
}

void peer_admitted(CUdevice owner, CUdevice device) {
    const util::Lock lock(contexts().mutex);
    contexts().peers.emplace(owner, device);
}

std::vector<CUdevice> peers_of(CUdevice owner) {
    const util::Lock lock(contexts().mutex);
    std::vector<CUdevice> devices;
    for (const auto& [of, device] : contexts().peers) {
        if (of == owner) devices.push_back(device);
    }
    return devices;
}

CUcontext another_context(CUdevice device, CUcontext other) {
    const util::Lock lock(contexts().mutex);
    return contexts().another(device, other);
}

ContextUse::ContextUse(CUcontext context, std::chrono::nanoseconds patience)
    : Use(contexts_with(context), context, patience) {}

ContextEnd::ContextEnd(CUcontext context, CUdevice device)
    : state_(std::make_unique<State>(State{context, device})) {
    ContextTable& all = contexts();
    util::Lock lock(all.mutex);
    all.changed.wait_for(lock, bounds::kOtherThread, [&]() LMS_REQUIRES(all.mutex) {
        // A green context's may end within the primary one's.
        return !all.any_ending(
            [&](const State& each) { return each.device == device && each.thread != state_->thread; });
    });
    all.ending.push_back(state_.get());
}

ContextEnd::~ContextEnd() {
    if (retire_ && !state_->gone) retire_->keep();
    retire_.reset();
    const util::Lock lock(contexts().mutex);
    std::erase(contexts().ending, state_.get());
    contexts().changed.notify_all();
}

CUcontext ContextEnd::successor() {
    const util::Lock lock(contexts().mutex);
    const CUcontext another = contexts().another(state_->device, state_->context);
    state_->left = !another;
    return another;
}

void ContextEnd::close() {
    retire_.emplace(contexts_with(state_->context), state_->context);
}

void ContextEnd::is_gone() {
    const util::Lock lock(contexts().mutex);
    state_->gone = true;
}

bool is_left_to_end(CUcontext context) {
    const util::Lock lock(contexts().mutex);
    return contexts().any_ending(
        [&](const ContextEnd::State& each) { return each.context == context && each.left; });
}

void new_context_seen(CUcontext context, CUdevice device) {
    ContextTable& all = contexts();
    util::Lock lock(all.mutex);
    const auto is_in_the_way = [&](const ContextEnd::State& each) LMS_REQUIRES(all.mutex) {
        return each.context == context || (each.device == device && !all.another(device, each.context));
    };
    all.changed.wait_for(lock, bounds::kOtherThread,
                         [&]() LMS_REQUIRES(all.mutex) { return !all.any_ending(is_in_the_way); });
    // To be forgotten waits for nobody.
    all.changed.wait(lock, [&]() LMS_REQUIRES(all.mutex) {
        return !all.any_ending([&](const ContextEnd::State& each)
                                   LMS_REQUIRES(all.mutex) { return each.gone && is_in_the_way(each); });
    });
    all.see(context, device);
}

}  // namespace lms::program
