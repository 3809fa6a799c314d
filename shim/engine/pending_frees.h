// Buffers freed in stream order whose streams have not reached the free yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "shim/engine/timelines.h"

namespace lms::engine {

struct PendingFree {
    AllocationId id;
    Use free;          // finished when the stream has reached it
    StreamKey stream;  // 0 once that is gone
    std::uint64_t bytes;
};

// Pure; the session's lock guards it. No call takes time in proportion to how many there are.
class PendingFrees {
  public:
    void add(const PendingFree& free);
    bool empty() const { return all_.empty(); }
    std::uint64_t bytes() const { return bytes_; }  // of all
    const PendingFree& oldest() const { return all_.begin()->second; }
    // Takes out the newest of `stream` with `bytes` (or the next more, not `exactly`): later work can use it,
    // and the stream comes to those that stay first.
    std::optional<AllocationId> take(StreamKey stream, std::uint64_t bytes, bool exactly = true);
    // Takes out one whose stream has reached the free, and which `ready` accepts.
    std::optional<AllocationId> take_finished(const Timelines& timelines,
                                              const std::function<bool(AllocationId)>& ready);
    // Its buffer goes in another way. False: it is none of these.
    bool remove(AllocationId id);
    // Nothing given to the stream's successor of the same key is behind these.
    void stream_gone(StreamKey stream);

  private:
    using Number = std::uint64_t;  // in order of age
    using Numbers = std::set<Number>;
    template <typename Key>
    static void drop(std::map<Key, Numbers>& index, const Key& key, Number number);
    void erase(Number number);

    Number next_ = 0;
    std::uint64_t bytes_ = 0;
    std::map<Number, PendingFree> all_;
    std::map<std::pair<StreamKey, std::uint64_t>, Numbers> by_size_;  // of streams that are not gone
    std::map<TimelineId, Numbers> by_timeline_;                       // positions rise with numbers
    std::unordered_map<AllocationId, Number> by_id_;
};

}  // namespace lms::engine
