// Which states are the same: numbers that only grow do not count, nor which block has which contents.
#include "tests/explore/world.h"

#include <algorithm>

namespace explore {

std::uint64_t World::fingerprint() const {
    std::uint64_t hash = 0xcbf29ce484222325u;
    const auto add = [&](std::uint64_t value) {
        hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    };
    const Residency& residency = engine_.residency();
    // How far a fence is: not by its number, but by how many come before it.
    const auto add_use = [&](const Use& use) {
        const bool finished = residency.timelines.finished(use);
        add(finished ? 0 : use.timeline * 64 + (use.position - residency.timelines.completed(use.timeline)));
    };
    const auto add_uses = [&](const std::vector<Use>& uses) {
        std::uint64_t all = 0;
        for (const Use& use : uses) {
            if (!residency.timelines.finished(use))
                all += std::uint64_t{1}
                       << (use.timeline * 8 +
                           std::min<std::uint64_t>(use.position - residency.timelines.completed(use.timeline),
                                                   7));
        }
        add(all);
    };
    const auto slot_of = [&](ChunkId chunk) {
        for (std::uint8_t i = 0; i < slot_count(); ++i) {
            if (slots_[i].alive && slots_[i].chunk == chunk) return i + std::uint64_t{1};
        }
        return std::uint64_t{0};
    };
    for (const Slot& slot : slots_) {
        add(slot.alive ? 2 + slot.written : 0);
        if (!slot.alive) continue;
        const Chunk& chunk = residency.chunk(slot.chunk);
        const Backing& backing = engine_.backing()[slot.chunk];
        add(static_cast<std::uint64_t>(chunk.state) * 2 + chunk.clean);
        add(chunk.pins * 64 + chunk.pins_in_place * 8 + chunk.keeps);
        add(residency.allocation(slot.buffer).dead);
        add_uses(chunk.uses);
        add(backing.fresh_at == engine_.soilings());
        add(backing.refusals);
        add(slot.mapped <= kMoving ? slot.mapped : 2 + contents_[slot.mapped]);
        const bool has_host = chunk.state == State::OnHost || chunk.clean || chunk.state == State::Filling;
        add(has_host && backing.host.bytes > 0 ? 1 + contents_[backing.host.alias] : 0);
    }
    for (const PendingEviction& each : engine_.pending_evictions()) {
        add(slot_of(each.chunk) * 16 + engine_.leaves(each) * 8 + each.enqueued * 4 + each.copies * 2 +
            each.orphan + each.foretold * 512);
        add_use(each.copied);
        add(contents_[each.device.alias] * 16u + contents_[each.host.alias]);
    }
    for (const ChunkId id : engine_.filling()) {
        add(slot_of(id));
        add_use(engine_.backing()[id].fill);
    }
    for (const Place place : {Place::Device, Place::Host})
        add(engine_.pool(place).free_bytes() * 1024 + engine_.pool(place).held_bytes());
    for (const Submissions::One& one : engine_.submissions().under_way())
        add(8 + one.opaque * 2 + one.unseen);
    add_uses(engine_.opaque_uses());
    add_uses(engine_.unseen_uses());
    add(engine_.earlier.any() * 2 + shrunk_ + refused_ * 4);
    for (std::uint8_t i = 0; i < kStreams; ++i) {
        const Stream& stream = streams_[i];
        add(100 + (stream.passed - residency.timelines.completed(i)) * 16 +
            (stream.recorded - stream.passed));
        for (const Piece& piece : stream.pieces) {
            add(static_cast<std::uint64_t>(piece.is) * 4096 + piece.thread * 64u + piece.work);
            if (piece.is == Piece::Is::Copy) add(contents_[piece.from] * 16u + contents_[piece.to]);
            add(piece.after && streams_[piece.after->first].passed < piece.after->second
                    ? 1 + piece.after->second - streams_[piece.after->first].passed
                    : 0);
        }
    }
    for (const Thread& thread : threads_) {
        add(thread.next * 8 + static_cast<std::uint64_t>(thread.at));
        if (thread.at == Thread::At::Begun || thread.at == Thread::At::Driver) {
            for (const ChunkId id : thread.pins.pinned) add(slot_of(id));
            for (const ChunkId id : thread.pins.in_place) add(32 + slot_of(id));
        }
    }
    add(static_cast<std::uint64_t>(command_.is));
    switch (command_.is) {
        case Command::Is::HostBlock:
            add(slot_of(command_.victim.victim) * 2 + command_.foretold);
            break;
        case Command::Is::RemapsOut:
            for (const RemapOut& each : command_.out)
                add(slot_of(each.chunk) * 4 + each.copies * 2 + each.kept.has_value());
            break;
        case Command::Is::DeviceBlock:
            add(slot_of(command_.need.chunk) * 4 + command_.need.overwritten * 2 + command_.need.written);
            break;
        case Command::Is::Fills:
            for (const Fill& fill : command_.fills.each)
                add(slot_of(fill.chunk) * 8 + fill.copies * 4 + fill.clears * 2 + fill.written);
            add(command_.fills.cleanly * 2 + (command_.fills.soilings == engine_.soilings()));
            break;
        default:
            break;
    }
    return hash;
}

}  // namespace explore
