#include "shim/engine/rules.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace lms::engine {

namespace {

bool is_on_device(State state) {
    return state == State::Filling || state == State::Resident || state == State::Evicting;
}

std::string of(ChunkId id, const Engine& engine) {
    return "chunk " + std::to_string(id) + ", " + std::string(name_of(engine.residency().chunk(id).state));
}

// Calls `look` with each chunk of each buffer until it answers something.
template <typename Look>
std::string first_of_chunks(const Engine& engine, Look look) {
    for (const AllocationId buffer : engine.residency().allocations()) {
        for (const ChunkId id : engine.residency().allocation(buffer).chunks) {
            if (const std::string broken = look(id, engine.residency().chunk(id), engine.backing()[id]);
                !broken.empty())
                return of(id, engine) + ": " + broken;
        }
    }
    return {};
}

std::string sums(const Engine& engine) {
    return engine.residency().consistent() ? "" : "they do not agree";
}

std::string memory(const Engine& engine) {
    return first_of_chunks(engine, [](ChunkId, const Chunk& chunk, const Backing& backing) -> std::string {
        if (is_on_device(chunk.state) && backing.device.bytes != chunk.bytes) return "no device memory";
        if (chunk.state == State::OnHost && backing.host.bytes != chunk.bytes) return "no host memory";
        if (chunk.clean && backing.host.bytes != chunk.bytes) return "clean, and no copy";
        return {};
    });
}

std::string moves(const Engine& engine) {
    return first_of_chunks(engine, [&](ChunkId id, const Chunk& chunk, const Backing&) -> std::string {
        if (chunk.state == State::Evicting) {
            if (chunk.pins > 0) return "held by work";
            if (chunk.keeps > 0) return "its mapping is recorded";
            if (engine.residency().in_flight(id)) return "unfinished work uses it";
        }
        if (chunk.state == State::Remapping && chunk.pins + chunk.pins_in_place > 0) return "held by work";
        return {};
    });
}

std::string held_in_place(const Engine& engine) {
    return first_of_chunks(engine, [](ChunkId, const Chunk& chunk, const Backing&) -> std::string {
        return chunk.pins_in_place > chunk.pins && chunk.state != State::OnHost ? "in use on the host" : "";
    });
}

std::string lists(const Engine& engine) {
    return first_of_chunks(engine, [&](ChunkId id, const Chunk& chunk, const Backing&) -> std::string {
        const auto fills = std::ranges::count(engine.filling(), id);
        if (fills != (chunk.state == State::Filling ? 1 : 0))
            return "comes in " + std::to_string(fills) + " times";
        const auto leaving = std::ranges::count_if(
            engine.pending_evictions(),
            [&](const PendingEviction& each) { return each.chunk == id && engine.leaves(each); });
        if (leaving != (chunk.state == State::Evicting ? 1 : 0))
            return "leaves by " + std::to_string(leaving) + " evictions";
        if (chunk.clean != engine.retained().contains({chunk.bytes, id})) return "not listed as clean";
        return {};
    });
}

std::string blocks(const Engine& engine) {
    std::vector<std::pair<Place, Address>> seen;
    const auto see = [&](const Block& block) {
        if (!block.unpinned) seen.emplace_back(block.place, block.alias);
    };
    for (const PendingEviction& each : engine.pending_evictions()) {
        if (each.copies) see(each.host);
        if (each.orphan) see(each.device);
    }
    first_of_chunks(engine, [&](ChunkId, const Chunk& chunk, const Backing& backing) -> std::string {
        if (is_on_device(chunk.state)) see(backing.device);
        const bool source = chunk.state == State::Filling && backing.host.bytes > 0;
        if (chunk.state == State::OnHost || chunk.clean || source) see(backing.host);
        return {};
    });
    for (const Place place : {Place::Device, Place::Host}) {
        for (const auto& [bytes, free] : engine.pool(place).free_blocks()) std::ranges::for_each(free, see);
    }
    std::ranges::sort(seen);
    const auto twice = std::ranges::adjacent_find(seen);
    return twice == seen.end() ? "" : "one belongs to two, at " + std::to_string(twice->second);
}

std::string pools(const Engine& engine) {
    for (const Place place : {Place::Device, Place::Host}) {
        std::uint64_t free = 0;
        for (const auto& [bytes, some] : engine.pool(place).free_blocks()) free += bytes * some.size();
        if (free != engine.pool(place).free_bytes()) return "free blocks do not add up";
        if (free > engine.pool(place).held_bytes()) return "more is free than is held";
    }
    return {};
}

struct Rule {
    const char* says;
    // Empty where the rule holds; else what breaks it.
    std::string (*broken)(const Engine& engine);
};

constexpr std::array kRules{
    Rule{"sums of bytes agree with the states of chunks", sums},
    Rule{"a chunk has the memory that its state says", memory},
    Rule{"a chunk that work holds, uses or has recorded does not move", moves},
    Rule{"a chunk in use in place is on the host", held_in_place},
    Rule{"a chunk is listed as what it is: filling, leaving, clean", lists},
    Rule{"a block is one chunk's, one copy's, or free", blocks},
    Rule{"free blocks add up, and are held", pools},
};

}  // namespace

std::string broken_rule(const Engine& engine) {
    for (const Rule& rule : kRules) {
        if (std::string broken = rule.broken(engine); !broken.empty())
            return std::string(rule.says) + ": " + broken;
    }
    return {};
}

}  // namespace lms::engine
