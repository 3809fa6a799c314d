// The present state according to a trace: GPUs, buffers and which of their chunks are on the GPU, levels,
// speeds. A file that continues another begins with it, and so is readable alone. Sessions know this state
// too, but the thread that begins a file holds the writer's lock, which comes after theirs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/trace/events.h"

namespace lms::trace {

// Not thread-safe. What an event refers to is copied.
class Standing {
  public:
    // May throw std::bad_alloc; then the event is missing.
    void note(const Event& event);
    void clear() { devices_.clear(); }

    // How many events describe it, and each of them, as of `now_ns`.
    std::size_t events() const;
    template <typename Tell>
    void tell(std::uint64_t now_ns, Tell tell) const;

  private:
    struct Buffer {
        Allocation event;
        std::vector<std::string> call_site;
        std::vector<Piece> pieces;
        std::optional<StreamFree> freed;
    };
    struct Device {
        std::optional<Gpu> gpu;
        std::string name;
        std::optional<Residency> levels;
        std::optional<LinkSpeeds> speeds;
        std::optional<Unmanaged> unmanaged;
        std::map<std::uint32_t, Buffer> buffers;
        std::unordered_map<std::uint32_t, Piece*> pieces;  // by chunk
    };

    void note_one(const Gpu& event);
    void note_one(const Allocation& event);
    void note_one(const Free& event);
    void note_one(const StreamFree& event);
    void note_one(const Launch& event);
    void note_one(const Move& event);
    void note_one(const Residency& event) { devices_[event.device].levels = event; }
    void note_one(const LinkSpeeds& event) { devices_[event.device].speeds = event; }
    void note_one(const Unmanaged& event) { devices_[event.device].unmanaged = event; }
    template <typename Other>
    void note_one(const Other&) {}
    template <typename Known, typename Tell>
    static void tell_of(std::optional<Known> event, std::uint64_t now_ns, Tell& tell) {
        if (!event) return;
        event->at_ns = now_ns;
        tell(Event(*event));
    }
    void is_resident(int device, std::uint32_t chunk, bool now);

    std::map<int, Device> devices_;
};

template <typename Tell>
void Standing::tell(std::uint64_t now_ns, Tell tell) const {
    for (const auto& [number, device] : devices_) {
        if (device.gpu) {
            Gpu gpu = *device.gpu;
            gpu.name = device.name;
            gpu.at_ns = now_ns;
            tell(Event(gpu));
        }
        for (const auto& [id, buffer] : device.buffers) {
            Allocation event = buffer.event;
            event.call_site = buffer.call_site;
            event.pieces = buffer.pieces;
            event.at_ns = now_ns;
            tell(Event(event));
            if (!buffer.freed) continue;
            StreamFree freed = *buffer.freed;
            freed.at_ns = now_ns;
            tell(Event(freed));
        }
        tell_of(device.levels, now_ns, tell);
        tell_of(device.speeds, now_ns, tell);
        tell_of(device.unmanaged, now_ns, tell);
    }
}

}  // namespace lms::trace
