// Host memory that is set apart for when the system refuses more: with it what has begun comes to its end.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace lms::util {

// Zero when made, so that in static storage it costs nothing until it is used. Any thread; none of these
// throws or asks for memory.
class Reserve {
  public:
    static constexpr std::size_t kBytes = std::size_t{4} << 20;
    static constexpr std::size_t kAlignment = 64;

    // Null: there is not so much left in one piece, or the alignment is beyond kAlignment.
    void* take(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept;
    bool owns(const void* place) const noexcept { return offset_of(place) < kBytes; }
    void give_back(void* place) noexcept;
    std::size_t used_bytes() const noexcept { return used_.load(std::memory_order_relaxed) * kAlignment; }

  private:
    static constexpr std::size_t kCells = kBytes / kAlignment;
    struct Run {
        std::uint32_t cells = 0;  // of it and, where it is free, maybe of others behind it
        bool used = false;
    };
    std::size_t offset_of(const void* place) const noexcept {
        return reinterpret_cast<std::uintptr_t>(place) - reinterpret_cast<std::uintptr_t>(memory_.data());
    }

    std::mutex mutex_;
    std::array<Run, kCells> runs_{};  // by their first cell; of the others nothing is said
    std::size_t end_ = 0;             // nothing was ever taken from here on
    std::atomic<std::size_t> used_{0};
    alignas(kAlignment) std::array<std::byte, kBytes> memory_{};
};

// That of the library, from which its operator new takes where malloc() refuses.
extern Reserve reserve;

// Whether it should go to what frees and ends things alone: some is used, and malloc() refuses still. Any
// thread; costs nothing while none is used.
bool out_of_memory() noexcept;

}  // namespace lms::util
