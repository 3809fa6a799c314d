#include "shim/executor/program_pins.h"

#include <algorithm>
#include <utility>

#include "shim/telemetry/telemetry.h"

namespace lms::executor {

void ProgramPins::let_go(const One& one) {
    engine_.unpin_resident(one.chunk, one.serial);
    const auto times = times_.find(one.chunk);
    if (--times->second > 0) return;
    times_.erase(times);
    bytes_ -= engine_.residency().chunk(one.chunk).bytes;
}

void ProgramPins::begin(engine::Address address, std::uint64_t bytes,
                        std::span<const engine::ChunkId> chunks) {
    Pin pin{address, bytes, {}};
    for (const engine::ChunkId id : chunks) {
        pin.chunks.push_back({id, engine_.pin_resident(id)});
        if (++times_[id] == 1) bytes_ += engine_.residency().chunk(id).bytes;
    }
    pins_.push_back(std::move(pin));
}

bool ProgramPins::end(engine::Address address, std::uint64_t bytes) {
    const auto pin = std::ranges::find_if(
        pins_, [&](const Pin& each) { return each.address == address && each.bytes == bytes; });
    if (pin == pins_.end()) return false;
    for (const One& one : pin->chunks) let_go(one);
    pins_.erase(pin);
    return true;
}

void ProgramPins::end_at(engine::Address address, std::uint64_t bytes) {
    std::erase_if(pins_, [&](const Pin& pin) {
        if (pin.address - address >= bytes) return false;
        for (const One& one : pin.chunks) let_go(one);
        return true;
    });
}

void ProgramPins::end_of(engine::AllocationId id) {
    // Most buffers that are freed are none of these.
    if (std::ranges::none_of(engine_.residency().allocation(id).chunks,
                             [&](engine::ChunkId chunk) { return has(chunk); }))
        return;
    std::erase_if(pins_, [&](Pin& pin) {
        std::erase_if(pin.chunks, [&](const One& one) {
            if (engine_.residency().chunk(one.chunk).allocation != id) return false;
            let_go(one);
            return true;
        });
        return pin.chunks.empty();
    });
}

bool ProgramPins::give_up() {
    if (pins_.empty()) return false;
    telemetry::announce_pins_given_up(bytes_);
    for (const Pin& pin : std::exchange(pins_, {})) {
        for (const One& one : pin.chunks) let_go(one);
    }
    return true;
}

}  // namespace lms::executor
