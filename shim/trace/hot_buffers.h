// Which of the process's buffers move most, kept in its live page.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "shim/trace/events.h"
#include "shim/trace/live_page.h"
#include "shim/util/mutex.h"

namespace lms::trace {

// What every buffer has moved is known exactly; the page has places for the few that moved most. One that is
// freed stays in its place until another that moves needs it. Any thread; nothing throws: a buffer for which
// memory is short is left out.
class HotBuffers {
  public:
    explicit HotBuffers(LiveBuffers& shown) : shown_(shown) {}

    void allocated(int device, std::uint32_t allocation, std::uint64_t bytes,
                   std::span<const std::string> call_site) noexcept;
    void moved(int device, std::uint32_t allocation, Direction direction, std::uint64_t bytes) noexcept;
    void freed(int device, std::uint32_t allocation) noexcept;

  private:
    struct Buffer {
        std::uint64_t number;
        std::uint64_t bytes;
        std::string call_site;  // as the page has it
        std::uint64_t bytes_in = 0;
        std::uint64_t bytes_out = 0;
        LiveBuffer* place = nullptr;  // that it had last; another's by now, if that has another number

        std::uint64_t moved() const { return bytes_in + bytes_out; }
        bool is_shown() const { return place != nullptr && place->number == number; }
    };

    LiveBuffer* place_for(const Buffer& buffer) LMS_REQUIRES(mutex_);
    void show(int device, const Buffer& buffer) LMS_REQUIRES(mutex_);

    util::Mutex mutex_{util::LockOrder::Leaf};
    LiveBuffers& shown_;  // changed under the lock; other processes read it
    std::uint64_t allocated_ LMS_GUARDED_BY(mutex_) = 0;
    std::unordered_map<std::uint64_t, Buffer> buffers_ LMS_GUARDED_BY(mutex_);  // by GPU and allocation
};

// Of this process. Never destroyed, for threads may outlive static objects.
HotBuffers& hot_buffers() noexcept;

}  // namespace lms::trace
