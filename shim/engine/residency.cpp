#include "shim/engine/residency.h"

#include <algorithm>
#include <numeric>

namespace lms::engine {

std::string_view name_of(State state) {
    switch (state) {
        case State::Empty:
            return "empty";
        case State::Remapping:
            return "remapping";
        case State::Filling:
            return "filling";
        case State::Resident:
            return "resident";
        case State::Evicting:
            return "evicting";
        case State::OnHost:
            return "on host";
    }
    return "?";
}

namespace {

template <typename T, typename Id>
Id take_slot(std::vector<T>& table, std::vector<Id>& free) {
    if (free.empty()) {
        table.emplace_back();
        return static_cast<Id>(table.size() - 1);
    }
    const Id id = free.back();
    free.pop_back();
    table[id] = T{};
    return id;
}

bool settled(const Chunk& chunk) {
    return chunk.pins == 0 && chunk.pins_in_place == 0 &&
           (chunk.state == State::Empty || chunk.state == State::Resident || chunk.state == State::OnHost);
}

}  // namespace

Residency::Residency(Address begin, std::uint64_t bytes, std::uint64_t granularity, Ranking& ranking)
    : begin_(begin), bytes_(bytes), granularity_(granularity), ranking_(&ranking) {}

AllocationId Residency::add(Address address, std::uint64_t asked_bytes,
                            std::span<const std::uint64_t> chunk_bytes) {
    const AllocationId id = take_slot(allocations_, free_allocations_);
    Allocation& allocation = allocations_[id];
    allocation.address = address;
    allocation.asked_bytes = asked_bytes;
    allocation.live = true;
    allocation.serial = ++serials_;
    allocation.bytes = std::accumulate(chunk_bytes.begin(), chunk_bytes.end(), std::uint64_t{0});
    Address at = address;
    for (const std::uint64_t bytes : chunk_bytes) {
        const ChunkId chunk_id = take_slot(chunks_, free_chunks_);
        Chunk& chunk = chunks_[chunk_id];
        chunk.address = at;
        chunk.bytes = bytes;
        chunk.allocation = id;
        chunk.serial = ++serials_;
        at += bytes;
        allocation.chunks.push_back(chunk_id);
        const std::size_t first = granule(chunk.address);
        const std::size_t count = bytes / granularity_;
        if (at_.size() < first + count) at_.resize(std::max(first + count, at_.size() * 2), kNoChunk);
        std::fill_n(at_.begin() + static_cast<std::ptrdiff_t>(first), count, chunk_id);
        ranking_->added({chunk_id, bytes, id, chunk.address, chunk.address - address, allocation.bytes});
    }
    allocated_bytes_ += allocation.bytes;
    return id;
}

bool Residency::remove(AllocationId id) {
    Allocation& allocation = allocations_[id];
    if (!allocation.live) return false;
    for (const ChunkId chunk : allocation.chunks) {
        if (!settled(chunks_[chunk])) return false;
    }
    for (const ChunkId chunk_id : allocation.chunks) {
        Chunk& chunk = chunks_[chunk_id];
        if (chunk.state == State::Resident) device_bytes_ -= chunk.bytes;
        if (chunk.state == State::OnHost) host_bytes_ -= chunk.bytes;
        std::fill_n(at_.begin() + static_cast<std::ptrdiff_t>(granule(chunk.address)),
                    chunk.bytes / granularity_, kNoChunk);
        ranking_->removed(chunk_id);
        chunk = Chunk{};
        free_chunks_.push_back(chunk_id);
    }
    allocated_bytes_ -= allocation.bytes;
    allocation = Allocation{};
    free_allocations_.push_back(id);
    return true;
}

void Residency::kill(AllocationId id) {
    allocations_[id].dead = true;
    for (const ChunkId chunk : allocations_[id].chunks) ranking_->freed(chunk);
}

void Residency::revive(AllocationId id, std::uint64_t asked_bytes) {
    allocations_[id].dead = false;
    allocations_[id].serial = ++serials_;
    allocations_[id].asked_bytes = asked_bytes;
    for (const ChunkId chunk : allocations_[id].chunks) {
        ranking_->removed(chunk);
        introduce(chunk);
    }
}

void Residency::introduce(ChunkId id) {
    const Chunk& chunk = chunks_[id];
    const Allocation& allocation = allocations_[chunk.allocation];
    const State where = chunk.state;
    ranking_->added({id, chunk.bytes, chunk.allocation, chunk.address, chunk.address - allocation.address,
                     allocation.bytes});
    if (where == State::Filling || where == State::Resident || where == State::Evicting)
        ranking_->resident(id);
}

void Residency::rank_by(Ranking& ranking) {
    ranking_ = &ranking;
    for (const AllocationId id : allocations()) {
        for (const ChunkId chunk : allocations_[id].chunks) introduce(chunk);
    }
}

ChunkId Residency::chunk_at(Address address) const {
    if (address - begin_ >= bytes_) return kNoChunk;
    const std::size_t index = granule(address);
    return index < at_.size() ? at_[index] : kNoChunk;
}

std::optional<AllocationId> Residency::allocation_at(Address address) const {
    const ChunkId id = chunk_at(address);
    if (id == kNoChunk) return std::nullopt;
    return chunks_[id].allocation;
}

void Residency::chunks_in(Address address, std::uint64_t bytes, std::vector<ChunkId>& out) const {
    // Nothing ever lay beyond, and a program may name any number of bytes.
    const Address known = begin_ + at_.size() * granularity_;
    const Address end = address + std::min(bytes, known - std::min(address, known));
    while (address < end) {
        const ChunkId id = chunk_at(address);
        if (id == kNoChunk) {
            address = (address / granularity_ + 1) * granularity_;
            continue;
        }
        out.push_back(id);
        address = chunks_[id].address + chunks_[id].bytes;
    }
}

std::uint64_t Residency::pin_resident(ChunkId id) {
    ++chunks_[id].keeps;
    return chunks_[id].serial;
}

void Residency::unpin_resident(ChunkId id, std::uint64_t serial, std::span<const Use> uses) {
    if (chunks_[id].serial != serial) return;
    --chunks_[id].keeps;
    for (const Use& one : uses) use(id, one);
}

std::uint64_t Residency::kept_bytes() const {
    std::uint64_t bytes = 0;
    for (const Chunk& chunk : chunks_) bytes += chunk.keeps > 0 ? chunk.bytes : 0;
    return bytes;
}

bool Residency::move(ChunkId id, State from, State to) {
    Chunk& chunk = chunks_[id];
    if (chunk.state != from) return false;
    chunk.state = to;
    return true;
}

bool Residency::begin_in(ChunkId id) {
    if (!may_come_in(id)) return false;
    Chunk& chunk = chunks_[id];
    if (chunk.state == State::OnHost) {
        host_bytes_ -= chunk.bytes;
    } else if (chunk.state != State::Empty) {
        return false;
    }
    chunk.state = State::Remapping;
    device_bytes_ += chunk.bytes;
    return true;
}

bool Residency::mapped_empty(ChunkId id) {
    if (!move(id, State::Remapping, State::Resident)) return false;
    ranking_->resident(id);
    return true;
}

bool Residency::begin_fill(ChunkId id) {
    if (!move(id, State::Remapping, State::Filling)) return false;
    ranking_->resident(id);
    return true;
}

bool Residency::filled(ChunkId id) {
    return move(id, State::Filling, State::Resident);
}

bool Residency::begin_out(ChunkId id) {
    if (chunks_[id].pins != 0 || chunks_[id].keeps != 0 || in_flight(id)) return false;
    return move(id, State::Resident, State::Evicting);
}

bool Residency::cancel_out(ChunkId id) {
    return move(id, State::Evicting, State::Resident);
}

bool Residency::begin_remap(ChunkId id) {
    return move(id, State::Evicting, State::Remapping);
}

bool Residency::out(ChunkId id) {
    if (!move(id, State::Remapping, State::OnHost)) return false;
    soil(id);
    device_bytes_ -= chunks_[id].bytes;
    host_bytes_ += chunks_[id].bytes;
    ranking_->evicted(id);
    return true;
}

bool Residency::undo_remap(ChunkId id) {
    return move(id, State::Remapping, State::Resident);
}

bool Residency::undo_in(ChunkId id, bool had_contents) {
    if (!move(id, State::Remapping, had_contents ? State::OnHost : State::Empty)) return false;
    device_bytes_ -= chunks_[id].bytes;
    if (had_contents) host_bytes_ += chunks_[id].bytes;
    return true;
}

bool Residency::back_by_host(ChunkId id) {
    const bool mapping = move(id, State::Remapping, State::OnHost);
    if (!mapping && !move(id, State::Empty, State::OnHost)) return false;
    if (mapping) device_bytes_ -= chunks_[id].bytes;
    host_bytes_ += chunks_[id].bytes;
    return true;
}

ChunkId Residency::next_victim(const VictimRequest& wanted, InFlight accept) {
    return next_victim(wanted, [&](ChunkId id) { return accept == InFlight::Accept || !in_flight(id); });
}

ChunkId Residency::next_victim(const VictimRequest& wanted, const std::function<bool(ChunkId)>& accept) {
    const auto eligible = [&](ChunkId id) {
        const Chunk& chunk = chunks_[id];
        return chunk.state == State::Resident && chunk.pins == 0 && chunk.keeps == 0 &&
               !allocations_[chunk.allocation].dead && accept(id);
    };
    const ChunkId victim = ranking_->next_victim(wanted, eligible);
    if (victim != kNoChunk || !must_go(wanted.purpose)) return victim;
    for (ChunkId id = 0; id < chunks_.size(); ++id) {
        if (!eligible(id)) continue;
        if (wanted.asker) wanted.asker->overruled();
        return id;
    }
    return kNoChunk;
}

std::vector<AllocationId> Residency::allocations() const {
    std::vector<AllocationId> live;
    for (AllocationId id = 0; id < allocations_.size(); ++id) {
        if (allocations_[id].live) live.push_back(id);
    }
    return live;
}

bool Residency::consistent() const {
    std::uint64_t allocated = 0;
    std::uint64_t on_device = 0;
    std::uint64_t on_host = 0;
    std::uint64_t remapping = 0;
    std::size_t granules = 0;
    for (const AllocationId id : allocations()) {
        Address expected = allocations_[id].address;
        for (const ChunkId chunk_id : allocations_[id].chunks) {
            const Chunk& chunk = chunks_[chunk_id];
            if (chunk.allocation != id || chunk.address != expected) return false;
            expected += chunk.bytes;
            allocated += chunk.bytes;
            granules += chunk.bytes / granularity_;
            if (chunk_at(chunk.address) != chunk_id || chunk_at(expected - 1) != chunk_id) return false;
            if (chunk.clean && (chunk.state == State::OnHost || chunk.state == State::Empty)) return false;
            switch (chunk.state) {
                case State::Empty:
                    break;
                case State::OnHost:
                    on_host += chunk.bytes;
                    break;
                case State::Remapping:
                    remapping += chunk.bytes;
                    break;
                default:
                    on_device += chunk.bytes;
            }
        }
    }
    const auto mapped = static_cast<std::size_t>(
        std::count_if(at_.begin(), at_.end(), [](ChunkId id) { return id != kNoChunk; }));
    return allocated == allocated_bytes_ && on_host == host_bytes_ &&
           on_device + remapping == device_bytes_ && mapped == granules;
}

}  // namespace lms::engine
