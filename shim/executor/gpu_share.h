// This process's share of a GPU that others under the shim use too (sharing/). Alone it costs two loads a
// look.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shim/sharing/page.h"
#include "shim/util/clock.h"
#include "shim/util/share_terms.h"

namespace lms::shim {

class GpuShare {
  public:
    // `device` is for messages, `folder` LMS_SHARE_DIR. Null where it is not shared: the terms say so, or its
    // page cannot be used, of which the user is told once.
    static std::unique_ptr<GpuShare> open(int device, std::span<const char, 16> uuid,
                                          const util::ShareTerms& terms,
                                          const std::string& folder = {}) noexcept;

    // Others hear of it at the next look. Any thread.
    void set_terms(const util::ShareTerms& terms) noexcept;

    // Whether others have come, or have changed. Any thread.
    bool is_due() const noexcept;

    // What this process has of the GPU, and what its driver has free.
    struct Levels {
        std::uint64_t allocated_bytes, held_bytes, pinned_bytes;
        std::uint64_t free_bytes;     // of device memory, but for the reserve
        std::uint64_t granted_bytes;  // by the look before
    };
    // Tells others, and works out what managed memory may take of the GPU; 0: all, for this process is alone.
    // One thread at a time; another gets what was granted before. No lock is needed.
    std::uint64_t look(const Levels& own) noexcept;

  private:
    GpuShare(int device, std::unique_ptr<sharing::SharingPage> page, const util::ShareTerms& terms)
        : device_(device),
          page_(std::move(page)),
          weight_(terms.weight),
          priority_(terms.priority),
          least_bytes_(terms.least_bytes) {}
    std::uint64_t grant_of(const Levels& own);

    const int device_;
    const std::unique_ptr<sharing::SharingPage> page_;
    std::atomic<std::uint32_t> weight_, priority_;
    std::atomic<std::uint64_t> least_bytes_;

    std::atomic<std::uint32_t> seen_changes_{0};
    std::atomic<util::Clock::rep> next_look_{0};  // while there are others
    std::atomic<bool> shared_{false};
    std::atomic<bool> looking_{false};
    std::uint64_t announced_bytes_ = 0;  // allocated; of the thread that looks
};

}  // namespace lms::shim
