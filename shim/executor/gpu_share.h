// This process's share of a GPU that others under the shim use too (sharing/). Alone it costs two loads a
// look.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shim/sharing/page.h"
#include "shim/sharing/turns.h"
#include "shim/util/bounds.h"
#include "shim/util/gpu_clock.h"
#include "shim/util/share_terms.h"

namespace lms::executor {

class GpuShare {
  public:
    // `device` is for messages, `folder` LMS_SHARE_DIR. Null where it is not shared: the terms say so, or its
    // page cannot be used, of which the user is told once.
    static std::unique_ptr<GpuShare> open(int device, std::span<const char, 16> uuid,
                                          const util::ShareTerms& terms, const std::string& folder = {},
                                          const util::GpuClock& clock = {}) noexcept;

    // Others hear of it at the next look. Any thread.
    void set_terms(const util::ShareTerms& terms) noexcept;

    // Whether others have come, or have changed. Any thread.
    bool is_due() const noexcept;
    // Whether there were others at the last look. Any thread.
    bool is_shared() const noexcept { return shared_.load(std::memory_order_relaxed); }

    // What this process has of the GPU, and what its driver has free.
    struct Levels {
        std::uint64_t allocated_bytes, held_bytes, pinned_bytes;
        std::uint64_t free_bytes;            // of device memory, but for the reserve
        std::uint64_t most_bytes;            // all of it, but for the reserve
        std::uint64_t least_bytes = 0;       // that cannot leave: the host has no room for them
        std::uint64_t granted_bytes = 0;     // by the look before
        std::uint64_t moved_bytes = 0;       // to the GPU, ever
        std::uint64_t link_bytes_per_s = 0;  // to the GPU; 0: not known
        bool in_use = true;                  // the program makes calls, or has unfinished work
    };
    // Tells others, and works out what managed memory may take of the GPU; 0: all, for this process is alone.
    // One thread at a time; another is told nothing. No lock is needed.
    std::optional<std::uint64_t> look(const Levels& own) noexcept;

    // What this process holds has changed. With the lock of its session.
    void note_held(std::uint64_t bytes) noexcept { page_->write_resident(bytes); }

    // Turns (sharing/turns.h), as of the last look. Any thread.
    //
    // Whether work waits for this process's turn: work that `lacks` chunks does while it is another's, and
    // all work while it is one's of higher priority.
    bool waits(bool lacks) const noexcept {
        const Turns turns = turns_.load(std::memory_order_relaxed);
        return turns == Turns::Higher || (lacks && turns == Turns::Others);
    }
    bool takes_turns() const noexcept { return turns_.load(std::memory_order_relaxed) != Turns::None; }
    // What this process is granted at most: where turns are taken, while it has one. 0: it is alone.
    std::uint64_t most_bytes() const noexcept { return most_bytes_.load(std::memory_order_relaxed); }
    // From now on turns are taken: the share of this process alone is too small for its work, or the link
    // carries no more. Whether they were not before.
    bool begin_turns() noexcept;

    // A thread that waits for it while it lives.
    class Waiter {
      public:
        Waiter(GpuShare& share, std::uint64_t since_ns);
        ~Waiter();  // as of the last look
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        // Until something has changed, or is to be looked at.
        void pause() const { share_.pause(bounds::kTurnLook); }
        bool for_too_long() const;

      private:
        std::uint64_t waited_ns() const;

        GpuShare& share_;
        const std::uint64_t since_ns_;
    };
    // Sleeps so long, less if another process announces something. No lock is held.
    void pause(util::Clock::duration most) const;

    // Whether a helper is to say when the program's use of the GPU ends and begins, beside its looks when
    // due. Any thread.
    bool is_turn_watched() const noexcept { return turn_watched_.load(std::memory_order_relaxed); }

    // For a thread that looks while the program makes no calls (session/idle_helper.h): sleeps until that may
    // be so, without others for good. wake() ends it.
    void await_news(const std::atomic<bool>& ended, util::Clock::duration most) const;
    void wake() noexcept { page_->announce(); }
    // Whether it is to look: the program's own threads, which would, have not for helper_looks_every().
    bool is_left_to_helper() const noexcept;
    std::uint64_t now_ns() const { return clock_.now_ns(); }
    const util::GpuClock& clock() const { return clock_; }

  private:
    enum class Turns : std::uint8_t { None, Own, Others, Higher };

    GpuShare(int device, std::unique_ptr<sharing::SharingPage> page, const util::ShareTerms& terms,
             const util::GpuClock& clock)
        : device_(device),
          page_(std::move(page)),
          weight_(terms.weight),
          priority_(terms.priority),
          least_bytes_(terms.least_bytes),
          clock_(clock) {}
    util::Clock::duration helper_looks_every() const noexcept;
    std::uint64_t grant_of(const Levels& own);
    void announce() noexcept;
    void watch_link(std::span<const sharing::Tenant> tenants, std::uint64_t now_ns);
    std::size_t holder_at(std::span<const sharing::Seen> seen, std::span<const sharing::Tenant> tenants,
                          std::uint64_t capacity_bytes, std::uint64_t now_ns);

    const int device_;
    const std::unique_ptr<sharing::SharingPage> page_;
    std::atomic<std::uint32_t> weight_, priority_;
    std::atomic<std::uint64_t> least_bytes_;
    const util::GpuClock clock_;

    std::atomic<std::uint32_t> seen_changes_{0};
    std::atomic<std::uint64_t> next_look_ns_{0};  // while there are others
    std::atomic<bool> shared_{false};
    std::atomic<Turns> turns_{Turns::None};
    std::atomic<std::uint64_t> most_bytes_{0};
    std::atomic<bool> turn_watched_{false};
    std::atomic<std::uint32_t> waiting_{0};    // threads
    std::atomic<std::uint64_t> waited_ns_{0};  // in all
    std::atomic<std::uint64_t> look_ns_{0};
    std::atomic<std::uint64_t> last_use_ns_{0};
    std::atomic<bool> looking_{false};
    // Of the thread that looks:
    std::uint64_t announced_bytes_ = 0;   // allocated
    std::uint64_t came_ns_ = 0;           // as in Tenant
    std::uint64_t waiting_since_ns_ = 0;  // some thread; 0: none
    sharing::TurnUse turn_use_;
    struct Window {
        std::uint64_t began_ns = 0, moved_bytes = 0;
        unsigned saturated = 0;  // windows, the last of them
    } link_;
};

}  // namespace lms::executor
