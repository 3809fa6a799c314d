#include "shim/trace/standing.h"

#include <algorithm>

namespace lms::trace {

void Standing::note(const Event& event) {
    std::visit([this](const auto& one) { note_one(one); }, event);
}

std::size_t Standing::events() const {
    std::size_t count = 0;
    for (const auto& [number, device] : devices_)
        count += (device.gpu ? 1 : 0) + device.buffers.size() + (device.levels ? 1 : 0) +
                 (device.speeds ? 1 : 0) + (device.unmanaged ? 1 : 0) +
                 static_cast<std::size_t>(std::ranges::count_if(
                     device.buffers, [](const auto& each) { return each.second.freed.has_value(); }));
    return count;
}

void Standing::note_one(const Gpu& event) {
    Device& device = devices_[event.device];
    device.name = event.name;
    device.gpu = event;
}

void Standing::note_one(const Allocation& event) {
    Device& device = devices_[event.device];
    Buffer& buffer = device.buffers[event.allocation];
    buffer = {event,
              {event.call_site.begin(), event.call_site.end()},
              {event.pieces.begin(), event.pieces.end()},
              {}};
    for (Piece& piece : buffer.pieces) device.pieces[piece.chunk] = &piece;
}

void Standing::note_one(const Free& event) {
    Device& device = devices_[event.device];
    const auto found = device.buffers.find(event.allocation);
    if (found == device.buffers.end()) return;
    for (const Piece& piece : found->second.pieces) device.pieces.erase(piece.chunk);
    device.buffers.erase(found);
}

void Standing::note_one(const StreamFree& event) {
    Device& device = devices_[event.device];
    const auto found = device.buffers.find(event.allocation);
    if (found != device.buffers.end()) found->second.freed = event;
}

// What comes in without a copy, for it is overwritten, is told by its use alone.
void Standing::note_one(const Launch& event) {
    for (const Touched& each : event.touched) {
        if (!each.in_place && !each.may_stay) is_resident(event.device, each.chunk, true);
    }
}

void Standing::note_one(const Move& event) {
    is_resident(event.device, event.chunk, event.direction == Direction::In);
}

void Standing::is_resident(int number, std::uint32_t chunk, bool now) {
    Device& device = devices_[number];
    const auto found = device.pieces.find(chunk);
    if (found != device.pieces.end()) found->second->resident = now;
}

}  // namespace lms::trace
