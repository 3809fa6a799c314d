// What may happen next.
#include "tests/explore/world.h"

#include <algorithm>

namespace explore {

void World::actions(std::vector<Action>& out) const {
    using K = Action::Kind;
    out.clear();
    const Residency& residency = engine_.residency();
    for (std::uint8_t i = 0; i < thread_count(); ++i) {
        const WorkPlan* const work = next_of(i);
        if (!work) continue;
        switch (threads_[i].at) {
            case Thread::At::Begun:
                if (engine_.may_announce(work->opaque)) out.push_back({K::Announce, i});
                continue;
            case Thread::At::Driver:
                out.push_back({K::Submitted, i});
                continue;
            case Thread::At::Freeing:
                out.push_back({K::Remove, i});
                continue;
            default:
                break;
        }
        switch (work->kind) {
            case WorkPlan::Kind::Kernel:
                if (engine_.present(requests(*work))) {
                    out.push_back({K::Acquire, i});
                } else if (plan_->in_place) {
                    out.push_back({K::AcquireInPlace, i});
                }
                break;
            case WorkPlan::Kind::Free:
                if (!uses_pending(work->names[0].slot)) out.push_back({K::Free, i});
                break;
            case WorkPlan::Kind::PinGraph: {
                const State where = residency.chunk(slots_[work->names[0].slot].chunk).state;
                if (where == State::Resident || where == State::Evicting) out.push_back({K::Pin, i});
                break;
            }
            case WorkPlan::Kind::UnpinGraph:
                out.push_back({K::Unpin, i});
        }
    }
    for (std::uint8_t i = 0; i < kStreams; ++i) {
        if (runnable(i)) out.push_back({K::Run, i});
    }
    for (std::uint8_t i = 0; i < kStreams; ++i) {
        if (residency.timelines.completed(i) < streams_[i].passed) {
            out.push_back({K::Deliver});
            break;
        }
    }
    if (plan_->earlier && engine_.earlier.entering) {
        out.push_back({K::EarlierOver});
        for (std::uint8_t i = 0; i < slot_count(); ++i) {
            if (slots_[i].alive) out.push_back({K::EarlierWrites, i});
        }
    }
    if (plan_->shrinks && !shrunk_) out.push_back({K::Shrink});
    const auto results = [&](K kind) {
        out.push_back({kind, 1});
        if (refused_ < plan_->refusals) out.push_back({kind, 0});
    };
    switch (command_.is) {
        case Command::Is::HostBlock:
            return results(K::MakeHostBlock);
        case Command::Is::Copies:
            return results(K::EnqueueCopies);
        case Command::Is::RemapsOut:
            return results(K::RemappedOut);
        case Command::Is::DeviceBlock:
            return results(K::MakeDeviceBlock);
        case Command::Is::Fills:
            return results(K::PagedIn);
        default:
            break;
    }
    // The migrator moves what work lacks, or what is foretold, and makes room for it.
    std::array<bool, 16> wanted{};
    bool any = false;
    for (std::size_t thread = 0; thread < threads_.size(); ++thread) {
        const WorkPlan* const work = next_of(thread);
        if (!work || threads_[thread].at != Thread::At::Idle) continue;
        for (const Named& each : work->names) wanted[each.slot] = work->kind != WorkPlan::Kind::UnpinGraph;
    }
    std::uint8_t eligible = 0;
    bool refused = false;
    for (std::uint8_t i = 0; i < slot_count(); ++i) {
        const Chunk& chunk = residency.chunk(slots_[i].chunk);
        wanted[i] = slots_[i].alive && chunk.state == State::OnHost && (wanted[i] || plan_->foresight) &&
                    !residency.allocation(slots_[i].buffer).dead;
        any |= wanted[i];
        refused |= slots_[i].alive && !engine_.may_leave(slots_[i].chunk);
        eligible += slots_[i].alive && chunk.state == State::Resident && chunk.pins == 0 &&
                    chunk.keeps == 0 && !residency.in_flight(slots_[i].chunk) &&
                    !residency.allocation(slots_[i].buffer).dead && engine_.may_leave(slots_[i].chunk);
    }
    bool leaving = false;
    bool ready = false, foretold = false;
    for (const PendingEviction& each : engine_.pending_evictions()) {
        leaving |= engine_.leaves(each);
        const bool complete = engine_.leaves(each) && engine_.is_complete(each);
        ready |= complete;
        foretold |= complete && each.foretold;
    }
    if (ready) out.push_back({K::RemapOut});
    if (foretold) out.push_back({K::RemapOut, 1});
    if (leaving && plan_->cancels) out.push_back({K::Cancel});
    if (engine_.opaque_busy()) return;
    const std::uint64_t leave = engine_.pending_eviction_bytes();
    const bool room = residency.device_bytes() + kBytes <= engine_.budget_bytes();
    const bool excess = residency.device_bytes() > engine_.budget_bytes() + leave;
    for (std::uint8_t pick = 0; ((any && !room) || excess) && pick < eligible; ++pick) {
        if (leave == 0 || excess) out.push_back({K::Evict, pick, 0});
        if (leave <= kBytes) out.push_back({K::Evict, pick, 1});
    }
    for (std::uint8_t pick = 0; plan_->foretells && pick < eligible; ++pick)
        out.push_back({K::Evict, pick, 2});
    if (refused && eligible == 0) out.push_back({K::ForgetRefusals});
    if (!engine_.retained().empty() && !host_room()) out.push_back({K::Spare});
    if (!room) return;
    for (std::uint8_t i = 0; i < slot_count(); ++i) {
        if (!wanted[i] || !residency.may_come_in(slots_[i].chunk)) continue;
        std::array<bool, 3> as{plan_->foresight, false, false};  // read, written, overwritten
        for (std::size_t thread = 0; thread < threads_.size(); ++thread) {
            const WorkPlan* const work = next_of(thread);
            if (!work || threads_[thread].at != Thread::At::Idle) continue;
            for (const Named& each : work->names) {
                if (each.slot == i) as[each.overwritten ? 2 : each.written ? 1 : 0] = true;
            }
        }
        for (std::uint8_t way = 0; way < 3; ++way) {
            if (as[way]) out.push_back({K::PageIn, i, way});
        }
    }
}

}  // namespace explore
