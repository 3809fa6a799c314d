// An order of chunks: a doubly linked list over their numbers, every operation in constant time.
#pragma once

#include <lms/policy.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lms::policy {

class ChunkList {
  public:
    // Makes room for `chunk`; the only call that may throw (std::bad_alloc).
    void reserve(std::uint32_t chunk) {
        if (chunk >= links_.size()) links_.resize(std::size_t{chunk} + 1);
    }

    bool contains(std::uint32_t chunk) const { return chunk < links_.size() && links_[chunk].linked; }

    // At the end. Does nothing if it is there already, or there is no room.
    void push_back(std::uint32_t chunk) {
        if (chunk >= links_.size() || links_[chunk].linked) return;
        append(chunk);
    }

    // Does nothing if it is not there.
    void remove(std::uint32_t chunk) {
        if (!contains(chunk)) return;
        unlink(links_[chunk]);
        links_[chunk].linked = false;
    }

    void move_to_back(std::uint32_t chunk) {
        if (!contains(chunk) || chunk == last_) return;
        unlink(links_[chunk]);
        append(chunk);
    }

    // The first that may be evicted, LMS_NO_CHUNK if none may.
    std::uint32_t first_eligible(const lms_policy_request& request) const {
        for (std::uint32_t chunk = first_; chunk != LMS_NO_CHUNK; chunk = links_[chunk].next) {
            if (request.eligible(request.context, chunk) != 0) return chunk;
        }
        return LMS_NO_CHUNK;
    }

  private:
    struct Link {
        std::uint32_t previous = LMS_NO_CHUNK;
        std::uint32_t next = LMS_NO_CHUNK;
        bool linked = false;
    };

    void append(std::uint32_t chunk) {
        links_[chunk] = {.previous = last_, .next = LMS_NO_CHUNK, .linked = true};
        (last_ == LMS_NO_CHUNK ? first_ : links_[last_].next) = chunk;
        last_ = chunk;
    }
    void unlink(const Link& link) {
        (link.previous == LMS_NO_CHUNK ? first_ : links_[link.previous].next) = link.next;
        (link.next == LMS_NO_CHUNK ? last_ : links_[link.next].previous) = link.previous;
    }

    std::vector<Link> links_;  // by chunk
    std::uint32_t first_ = LMS_NO_CHUNK;
    std::uint32_t last_ = LMS_NO_CHUNK;
};

}  // namespace lms::policy
