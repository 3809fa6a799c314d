// What a pointer into a large buffer means: where the program's own pointers begin divides it, for an
// allocator that divides one large piece of memory itself tells nobody how.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

namespace lms::engine {

// Knows of each kind of large buffer where in it pointers began. A guess: what lies behind a pointer may
// reach beyond where another began, so nothing that would lose bytes may rest on it.
//
// `kind` tells buffers apart that are divided in their own way; `offset` is from a buffer's start, in bytes;
// `now` counts pieces of work.
class Parts {
  public:
    void begins(std::uint64_t kind, std::uint64_t offset, std::uint64_t now);
    // Where the part ends that begins at `offset`, in a buffer of `bytes`.
    std::uint64_t end_of(std::uint64_t kind, std::uint64_t offset, std::uint64_t bytes, std::uint64_t now);

  private:
    // Work after which what has not been seen again is no beginning any more: memory is divided anew.
    static constexpr std::uint64_t kForgotten = 16384;
    // Beginnings that are remembered of a kind, and kinds.
    static constexpr std::size_t kMostBeginnings = 16384, kMostKinds = 64;

    struct Kind {
        std::map<std::uint64_t, std::uint64_t> seen;  // offset -> when last
        std::uint64_t latest = 0;
    };

    std::unordered_map<std::uint64_t, Kind> kinds_;
};

}  // namespace lms::engine
