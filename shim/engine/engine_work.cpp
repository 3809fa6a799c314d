// Work: what it holds, and what moves must wait for.
#include <algorithm>

#include "shim/engine/engine.h"

namespace lms::engine {

bool Engine::present(std::span<const ChunkRequest> needs) const {
    return std::ranges::all_of(needs, [&](const ChunkRequest& need) {
        if (gone(need, residency_)) return true;
        switch (residency_.chunk(need.chunk).state) {
            case State::Resident:
            case State::Filling:
            case State::Evicting:
                return true;
            case State::OnHost:
                return !need.wants_in();
            default:
                return false;
        }
    });
}

[[gnu::always_inline]] inline bool Engine::hold_one(const ChunkRequest& need, ChunkPins& pins) {
    if (gone(need, residency_)) return true;
    if (residency_.pin_on_device(need.chunk)) [[likely]] {
        pins.pinned.push_back(need.chunk);
    } else if (residency_.chunk(need.chunk).state == State::OnHost && !need.wants_in()) {
        residency_.pin_in_place(need.chunk);
        pins.in_place.push_back(need.chunk);
    } else {
        return false;
    }
    backing_[need.chunk].fresh_at = Backing::kUsed;
    return true;
}

bool Engine::hold(std::span<const ChunkRequest> needs, ChunkPins& pins, std::vector<ChunkRequest>& missing) {
    pins.pinned.reserve(needs.size());
    bool some_aside = false;
    for (const ChunkRequest& need : needs) {
        if (need.aside) {
            some_aside = true;
        } else if (!hold_one(need, pins)) {
            missing.push_back(need);
        }
    }
    if (some_aside && missing.empty()) {
        for (const ChunkRequest& need : needs) {
            if (need.aside && !hold_one(need, pins)) missing.push_back(need);
        }
    }
    return missing.empty();
}

bool Engine::hold_in_place(std::span<const ChunkRequest> needs, std::span<const ChunkRequest> missing,
                           ChunkPins& pins) {
    const auto is_on_host = [&](const ChunkRequest& need) {
        return residency_.chunk(need.chunk).state == State::OnHost;
    };
    if (!std::ranges::all_of(missing, is_on_host)) return false;
    for (const ChunkRequest& need : missing) {
        residency_.pin_in_place(need.chunk);
        pins.in_place.push_back(need.chunk);
        backing_[need.chunk].fresh_at = Backing::kUsed;
    }
    return std::ranges::all_of(needs,
                               [&](const ChunkRequest& need) { return !need.aside || hold_one(need, pins); });
}

void Engine::let_go(const ChunkPins& pins) {
    for (const ChunkId id : pins.pinned) residency_.unpin(id);
    for (const ChunkId id : pins.in_place) residency_.unpin_in_place(id);
}

void Engine::drop(ChunkPins& pins) {
    let_go(pins);
    pins.pinned.clear();
    pins.in_place.clear();
}

void Engine::announce(std::span<const ChunkRequest> needs, ChunkPins& pins) {
    // Copies in run in order on one stream, so the latest one stands for all.
    pins.fill = {};
    const auto await = [&](ChunkId id) {
        if (residency_.chunk(id).state != State::Filling) return;
        const Use& fill = backing_[id].fill;
        if (fill.position >= pins.fill.position) pins.fill = fill;
    };
    if (pins.opaque) {
        cancel_evictions();
        std::ranges::for_each(filling_, await);
    } else {
        std::ranges::for_each(pins.pinned, await);
    }
    if (pins.opaque || pins.unseen) drop_copies();
    if (!retained_.empty()) {
        for (const ChunkRequest& need : needs) {
            if (need.written && !gone(need, residency_)) drop_copy(need.chunk);
        }
    }
}

void Engine::submitted(const ChunkPins& pins, const std::optional<Use>& end) {
    ++works_;
    if (!end) return;
    gpu_waits_.submitted(*end, pins.fill, residency_.timelines);
    for (const ChunkId id : pins.pinned) residency_.use(id, *end);
    for (const ChunkId id : pins.in_place) {
        residency_.use(id, *end);
        backing_[id].digest.reset();
    }
    if (pins.opaque) record_use(opaque_uses_, *end, residency_.timelines);
    if (pins.unseen) record_use(unseen_uses_, *end, residency_.timelines);
}

void Engine::all_work_is_over() {
    opaque_uses_.clear();
    unseen_uses_.clear();
}

bool Engine::opaque_busy() const {
    return submissions_.any_opaque() || earlier.any() || unfinished(opaque_uses_, residency_.timelines);
}

bool Engine::unseen_busy() const {
    return submissions_.any_unseen() || unfinished(unseen_uses_, residency_.timelines);
}

void Engine::touch(std::span<const ChunkRequest> needs) {
    for (const ChunkRequest& need : needs) {
        if (!gone(need, residency_)) residency_.touch(need.chunk);
    }
}

}  // namespace lms::engine
