// The residency map: which chunk is where, what may happen to it next, and what it adds up to. Pure logic: no
// CUDA, no clock, no environment, no I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "shim/engine/chunk.h"
#include "shim/engine/ranking.h"
#include "shim/engine/timelines.h"

namespace lms::engine {

// All calls need the session's lock. Transitions that the state does not allow return false and change
// nothing.
class Residency {
  public:
    // Addresses are looked up in [begin, begin + bytes), in steps of `granularity`. `ranking` is borrowed.
    Residency(Address begin, std::uint64_t bytes, std::uint64_t granularity, Ranking& ranking);

    // Enters a buffer of `asked_bytes` at `address`, cut into chunks of the given sizes, all Empty.
    AllocationId add(Address address, std::uint64_t asked_bytes, std::span<const std::uint64_t> chunk_bytes);
    // Forgets a buffer. Refused while one of its chunks is pinned, moving or being remapped.
    bool remove(AllocationId id);
    // Marks a buffer as freed in stream order: its contents are never copied again. `revive` makes it a new
    // buffer of `asked_bytes`, which its chunks hold.
    void kill(AllocationId id);
    void revive(AllocationId id, std::uint64_t asked_bytes);

    // Another decides from now on, and is told of all that is there. Nothing may be moving.
    void rank_by(Ranking& ranking);

    const Chunk& chunk(ChunkId id) const { return chunks_[id]; }
    const Allocation& allocation(AllocationId id) const { return allocations_[id]; }
    // The chunk that holds `address`, or kNoChunk.
    ChunkId chunk_at(Address address) const;
    // The buffer that holds `address`.
    std::optional<AllocationId> allocation_at(Address address) const;
    // The chunks that [address, address + bytes) touches, in address order; holes are passed over.
    void chunks_in(Address address, std::uint64_t bytes, std::vector<ChunkId>& out) const;

    // A pin keeps a chunk from being evicted, in place it keeps it on the host.
    void pin(ChunkId id) { ++chunks_[id].pins; }
    // The same if it is on the device, from where it does not go then after all; else false.
    bool pin_on_device(ChunkId id) {
        Chunk& chunk = chunks_[id];
        if (chunk.state == State::Evicting) chunk.state = State::Resident;
        if (chunk.state != State::Resident && chunk.state != State::Filling) return false;
        ++chunk.pins;
        return true;
    }
    void unpin(ChunkId id) { --chunks_[id].pins; }
    void pin_in_place(ChunkId id) { ++chunks_[id].pins_in_place; }
    void unpin_in_place(ChunkId id) { --chunks_[id].pins_in_place; }
    // Keeps a chunk from being evicted, but not its buffer from being removed. Returns what unpin_resident
    // wants; that does nothing to a chunk that is gone, and leaves `uses` behind on another.
    std::uint64_t pin_resident(ChunkId id);
    void unpin_resident(ChunkId id, std::uint64_t serial, std::span<const Use> uses = {});
    std::uint64_t kept_bytes() const;  // of the chunks that it keeps
    // Work that uses the chunk was submitted; it is finished when `use` is.
    void use(ChunkId id, Use use) { record_use(chunks_[id].uses, use, timelines); }
    // A launching thread named these, once each, which are the most recently used now: the policy hears of
    // it.
    void work(std::span<const ChunkId> ids, const WorkFacts* facts) { ranking_->work(ids, facts); }
    bool wants_facts() const { return ranking_->wants_facts(); }
    // The same of one that was not named by work.
    void touch(ChunkId id) { ranking_->used(id); }
    bool in_flight(ChunkId id) const { return unfinished(chunks_[id].uses, timelines); }
    // Nobody uses it where it is on the host, and nobody is about to.
    bool may_come_in(ChunkId id) const { return chunks_[id].pins_in_place == 0 && !in_flight(id); }

    // What it fills from is kept, and nothing that may write it is unfinished.
    void clean(ChunkId id) { chunks_[id].clean = chunks_[id].state == State::Filling; }
    // It may be written from here on, or its host memory is wanted for something else.
    void soil(ChunkId id) { chunks_[id].clean = false; }

    // The transitions; names say what has just happened or is about to. False, and nothing changed, from any
    // state but those named.
    //
    // In: device memory is about to be mapped (Empty, OnHost -> Remapping); mapped, its contents undefined
    // (-> Resident), or the copy enqueued (-> Filling) and complete (-> Resident).
    bool begin_in(ChunkId id);
    bool mapped_empty(ChunkId id);
    bool begin_fill(ChunkId id);
    bool filled(ChunkId id);
    // Mapping failed (Remapping -> OnHost, or Empty where it had no contents).
    bool undo_in(ChunkId id, bool had_contents);
    // Out: the copy is about to start (Resident, unpinned, not kept, not in flight -> Evicting); it is
    // complete
    // (-> Remapping); the device memory is taken away (-> OnHost).
    bool begin_out(ChunkId id);
    bool begin_remap(ChunkId id);
    bool out(ChunkId id);
    // A launch needs it after all (Evicting -> Resident); taking the memory away failed (Remapping ->
    // Resident).
    bool cancel_out(ChunkId id);
    bool undo_remap(ChunkId id);
    // Memory never touched, given host backing (Empty -> OnHost; Remapping, where that was mapped).
    bool back_by_host(ChunkId id);

    enum class InFlight { Refuse, Accept };
    // The policy's next victim among Resident, unpinned chunks of live buffers; with Refuse only those whose
    // last use has finished. Where the policy names none, any that there is: what a program needs must not
    // fail for a plugin that answers nonsense.
    ChunkId next_victim(const VictimRequest& wanted, InFlight in_flight);
    // The same, whatever its uses, among those that `accept` accepts.
    ChunkId next_victim(const VictimRequest& wanted, const std::function<bool(ChunkId)>& accept);
    // What the policy foretells to be needed next of what is not on the device, soonest first; how many.
    std::size_t upcoming(std::span<ChunkId> out) { return ranking_->upcoming(out); }
    std::uint64_t eviction_start(std::uint64_t budget_bytes) const {
        return ranking_->eviction_start(budget_bytes, allocated_bytes_);
    }

    // Bytes of all buffers; of chunks on the device (Filling, Resident, Evicting); of chunks OnHost. A chunk
    // that is Remapping counts where it was.
    std::uint64_t allocated_bytes() const { return allocated_bytes_; }
    std::uint64_t device_bytes() const { return device_bytes_; }
    std::uint64_t host_bytes() const { return host_bytes_; }

    // Ids of all live buffers, oldest id first.
    std::vector<AllocationId> allocations() const;

    // True when the sums agree with the states and every address maps back to its chunk. For tests.
    bool consistent() const;

    Timelines timelines;

  private:
    bool move(ChunkId id, State from, State to);
    void introduce(ChunkId id);
    std::size_t granule(Address address) const { return (address - begin_) / granularity_; }

    Address begin_;
    std::uint64_t bytes_;
    std::uint64_t granularity_;
    Ranking* ranking_;
    std::vector<Chunk> chunks_;
    std::vector<Allocation> allocations_;
    std::vector<ChunkId> free_chunks_;
    std::vector<AllocationId> free_allocations_;
    std::vector<ChunkId> at_;  // granule -> chunk
    std::uint64_t serials_ = 0;
    std::uint64_t allocated_bytes_ = 0;
    std::uint64_t device_bytes_ = 0;
    std::uint64_t host_bytes_ = 0;
};

}  // namespace lms::engine
