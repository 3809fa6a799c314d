#include "shim/executor/program_pins.h"

#include <algorithm>
#include <utility>

#include "shim/executor/user_warnings.h"

namespace lms::shim {

namespace {

void let_go(State& state, const ProgramPin::One& one) LMS_LOCKED {
    state.engine.unpin_resident(one.chunk, one.serial);
    const auto pinned = state.program_pinned.find(one.chunk);
    if (--pinned->second > 0) return;
    state.program_pinned.erase(pinned);
    state.program_pinned_bytes -= state.residency.chunk(one.chunk).bytes;
}

}  // namespace

bool is_program_pinned(const State& state, engine::ChunkId id) {
    return state.program_pinned.contains(id);
}

void begin_pin(State& state, engine::Address address, std::uint64_t bytes,
               std::span<const engine::ChunkId> chunks) {
    ProgramPin pin{address, bytes, {}};
    for (const engine::ChunkId id : chunks) {
        pin.chunks.push_back({id, state.engine.pin_resident(id)});
        if (++state.program_pinned[id] == 1) state.program_pinned_bytes += state.residency.chunk(id).bytes;
    }
    state.program_pins.push_back(std::move(pin));
}

bool end_pin(State& state, engine::Address address, std::uint64_t bytes) {
    const auto pin = std::ranges::find_if(state.program_pins, [&](const ProgramPin& each) {
        return each.address == address && each.bytes == bytes;
    });
    if (pin == state.program_pins.end()) return false;
    for (const ProgramPin::One& one : pin->chunks) let_go(state, one);
    state.program_pins.erase(pin);
    return true;
}

void end_pins_at(State& state, engine::Address address, std::uint64_t bytes) {
    std::erase_if(state.program_pins, [&](const ProgramPin& pin) LMS_LOCKED {
        if (pin.address - address >= bytes) return false;
        for (const ProgramPin::One& one : pin.chunks) let_go(state, one);
        return true;
    });
}

void end_pins_of(State& state, engine::AllocationId id) {
    // Most buffers that are freed are none of these.
    if (std::ranges::none_of(state.residency.allocation(id).chunks, [&](engine::ChunkId chunk) LMS_LOCKED {
            return is_program_pinned(state, chunk);
        }))
        return;
    std::erase_if(state.program_pins, [&](ProgramPin& pin) {
        std::erase_if(pin.chunks, [&](const ProgramPin::One& one) LMS_LOCKED {
            if (state.residency.chunk(one.chunk).allocation != id) return false;
            let_go(state, one);
            return true;
        });
        return pin.chunks.empty();
    });
}

bool give_up_pins(State& state) {
    if (state.program_pins.empty()) return false;
    announce_pins_given_up(state.program_pinned_bytes);
    for (const ProgramPin& pin : std::exchange(state.program_pins, {})) {
        for (const ProgramPin::One& one : pin.chunks) let_go(state, one);
    }
    return true;
}

}  // namespace lms::shim
