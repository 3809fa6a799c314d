#include "shim/trace/hot_buffers.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <tuple>

#include "shim/trace/python_frames.h"

namespace lms::trace {
namespace {

std::uint64_t key(int device, std::uint32_t allocation) {
    return std::uint64_t{static_cast<std::uint32_t>(device)} << 32 | allocation;
}

// As many whole frames as there is room for: those of Python, if there are any.
std::string site_text(std::span<const std::string> frames) {
    std::string text;
    for (const std::string& frame : frames.subspan(first_telling(frames))) {
        if (text.size() + frame.size() + 2 > LiveBuffer::kSiteBytes) break;
        if (!text.empty()) text += '\n';
        text += frame;
    }
    return text;
}

std::uint64_t moved(const LiveBuffer& shown) {
    return shown.bytes_in + shown.bytes_out;
}

}  // namespace

void HotBuffers::allocated(int device, std::uint32_t allocation, std::uint64_t bytes,
                           std::span<const std::string> call_site) noexcept try {
    const util::Lock lock(mutex_);
    const std::uint64_t number = ++allocated_;
    buffers_.insert_or_assign(key(device, allocation), Buffer{number, bytes, site_text(call_site)});
} catch (const std::exception&) {
    // Left out.
}

void HotBuffers::moved(int device, std::uint32_t allocation, Direction direction,
                       std::uint64_t bytes) noexcept {
    const util::Lock lock(mutex_);
    const auto found = buffers_.find(key(device, allocation));
    if (found == buffers_.end() || bytes == 0) return;
    Buffer& buffer = found->second;
    (direction == Direction::In ? buffer.bytes_in : buffer.bytes_out) += bytes;
    if (buffer.is_shown()) {
        set(buffer.place->bytes_in, buffer.bytes_in);
        set(buffer.place->bytes_out, buffer.bytes_out);
    } else if (LiveBuffer* const place = place_for(buffer)) {
        buffer.place = place;
        show(device, buffer);
    }
}

void HotBuffers::freed(int device, std::uint32_t allocation) noexcept {
    const util::Lock lock(mutex_);
    const auto found = buffers_.find(key(device, allocation));
    if (found == buffers_.end()) return;
    if (found->second.is_shown()) set(found->second.place->freed, 1);
    buffers_.erase(found);
}

// One that nobody has; else of a buffer that is gone; else of the one that has moved least, if that is less.
LiveBuffer* HotBuffers::place_for(const Buffer& buffer) {
    LiveBuffer& least = *std::ranges::min_element(shown_.buffers, {}, [](const LiveBuffer& each) {
        return std::tuple(each.number != 0, each.freed == 0, trace::moved(each));
    });
    const bool free = least.number == 0 || least.freed == 1;
    return free || trace::moved(least) < buffer.moved() ? &least : nullptr;
}

void HotBuffers::show(int device, const Buffer& buffer) {
    LiveBuffer& place = *buffer.place;
    // Odd whatever it was: it may have been copied in the middle of a change (publish()). Nothing of what
    // follows is to be seen before it.
    const std::uint64_t changing = shown_.changes | 1;
    shown_.changes.exchange(changing, std::memory_order_acq_rel);
    set(place.number, buffer.number);
    set(place.device, static_cast<std::uint64_t>(device));
    set(place.bytes, buffer.bytes);
    set(place.bytes_in, buffer.bytes_in);
    set(place.bytes_out, buffer.bytes_out);
    set(place.freed, 0);
    std::strncpy(place.call_site, buffer.call_site.c_str(), LiveBuffer::kSiteBytes - 1);
    shown_.changes.store(changing + 1, std::memory_order_release);
}

HotBuffers& hot_buffers() noexcept {
    alignas(HotBuffers) static char place[sizeof(HotBuffers)];
    static HotBuffers* const made = new (place) HotBuffers(own_page.page.moving);
    return *made;
}

}  // namespace lms::trace
