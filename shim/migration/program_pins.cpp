#include "shim/migration/program_pins.h"

#include <algorithm>
#include <set>

#include "shim/migration/user_warnings.h"

namespace lms::engine {

std::uint64_t pinned_bytes(const State& state) {
    std::uint64_t sum = 0;
    std::set<core::ChunkId> counted;
    for (const ProgramPin& pin : state.program_pins) {
        for (const ProgramPin::One& one : pin.chunks) {
            if (counted.insert(one.chunk).second) sum += state.residency.chunk(one.chunk).bytes;
        }
    }
    return sum;
}

bool is_program_pinned(const State& state, core::ChunkId id) {
    return std::ranges::any_of(state.program_pins, [&](const ProgramPin& pin) {
        return std::ranges::any_of(pin.chunks, [&](const ProgramPin::One& one) { return one.chunk == id; });
    });
}

void end_pin(State& state, const ProgramPin& pin) {
    for (const ProgramPin::One& one : pin.chunks) state.residency.unpin_resident(one.chunk, one.serial);
}

void end_pins_of(State& state, core::AllocationId id) {
    std::erase_if(state.program_pins, [&](ProgramPin& pin) {
        std::erase_if(pin.chunks, [&](const ProgramPin::One& one) {
            if (state.residency.chunk(one.chunk).allocation != id) return false;
            state.residency.unpin_resident(one.chunk, one.serial);
            return true;
        });
        return pin.chunks.empty();
    });
}

bool give_up_pins(State& state) {
    if (state.program_pins.empty()) return false;
    announce_pins_given_up(pinned_bytes(state));
    for (const ProgramPin& pin : state.program_pins) end_pin(state, pin);
    state.program_pins.clear();
    return true;
}

}  // namespace lms::engine
