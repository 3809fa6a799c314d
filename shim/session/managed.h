// Where managed memory is, and whose: what every call asks first.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "shim/engine/chunk.h"

namespace lms::session {

class Session;

namespace detail {
// Of all managed memory. Here, because every copy compares with them.
inline constinit std::atomic<engine::Address> span_begin{~engine::Address{0}};
inline constinit std::atomic<engine::Address> span_end{0};
inline constinit std::atomic<bool> span_is_mixed{false};
inline constinit std::atomic<bool> forked{false};
}  // namespace detail

// Where addresses of managed memory lie: [begin, end).
struct Bounds {
    engine::Address begin = 0;
    engine::Address end = 0;

    friend bool operator==(const Bounds&, const Bounds&) = default;
};

inline bool in(Bounds bounds, engine::Address address) {
    return address - bounds.begin < bounds.end - bounds.begin;
}

// A range of device addresses, or of anything else, that work reads or writes.
struct Range {
    engine::Address address;
    std::uint64_t bytes;
    bool overwritten = false;  // every byte is written and none is read
    bool may_stay = false;     // what of it is in host memory may be used there
    bool only_read = false;    // nothing of it is written
};

// A range of addresses that holds all managed memory, and those that the program has reserved for its own,
// which graphs and tables may name before anything is mapped there; empty where there is none.
inline Bounds managed_bounds() {
    const engine::Address end = detail::span_end.load(std::memory_order_relaxed);
    return end == 0 ? Bounds{} : Bounds{detail::span_begin.load(std::memory_order_relaxed), end};
}

// Whether other memory may be in those bounds: they are not one session's alone.
inline bool bounds_are_mixed() {
    return detail::span_is_mixed.load(std::memory_order_relaxed);
}

// Whether this is a child of fork whose parent had a context: CUDA does not work here, and what the shim has
// may be half changed or locked, by threads that are not here.
inline bool in_forked_child() {
    return detail::forked.load(std::memory_order_relaxed);
}

// The session whose memory is at `address`, or null: from its span, or mapped by the program itself. For what
// is not managed but was mapped beside what is (one array may lie on both), that of the latter.
Session* session_at(engine::Address address);
// The session from whose span `address` is, or null.
Session* allocator_of(engine::Address address);

// All of them, in order of opening. One load where there is none.
std::span<Session* const> sessions();

}  // namespace lms::session
