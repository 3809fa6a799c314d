// How much host memory this process may pin beside others under the shim: what all of the machine's have been
// promised stays within what it can spare, over all their GPUs.
//
// A page for the machine (sharing/page.h) has what each process was promised. Who wants more writes so first,
// then adds all up, and takes back what is beyond: of two that do so at once each sees the other, or one is
// first. What was promised before is never taken back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "shim/sharing/page.h"
#include "shim/util/clock.h"
#include "shim/util/mutex.h"
#include "shim/util/share_terms.h"

namespace lms::executor {

// Any thread.
class HostClaims {
  public:
    // `folder` is LMS_SHARE_DIR. Null where it is not shared: the terms say so, or its page cannot be used,
    // of which the user is told.
    static std::unique_ptr<HostClaims> open(const util::ShareTerms& terms,
                                            const std::string& folder = {}) noexcept;

    // Of one session, whose lock guards it.
    struct Part {
        std::uint64_t claimed_bytes = 0;  // may be pinned; with `pinned_bytes` never more
        std::uint64_t pinned_bytes = 0;
        std::uint64_t returnable_bytes = 0;  // of those, beyond what its buffers were promised
        bool operator==(const Part&) const = default;
    };
    // Raises what `part` may pin to `bytes`. False: there is less room, and it is raised not at all, or as
    // far as that goes.
    enum class Short { Nothing, Some };
    bool claim(Part& part, std::uint64_t bytes, Short otherwise = Short::Nothing) noexcept;
    // Tells what is so.
    void settle(Part& part, const Part& now) noexcept;

    // Whether others that asked or have something returnable may leave room, by the last claim() that was
    // given less.
    bool may_come() const noexcept { return may_come_; }
    // This process has been refused so much and waits for it; 0: no more.
    void lack(std::uint64_t bytes) noexcept;

    // Whether others have said that they lack something since lacking_bytes(), or others are to see that this
    // process lives (sharing/page.h, kUnseen).
    bool is_due() const noexcept;
    std::uint64_t lacking_bytes() noexcept;

  private:
    using Clock = util::Clock;

    explicit HostClaims(std::unique_ptr<sharing::SharingPage> page) : page_(std::move(page)) {}
    bool write() LMS_REQUIRES(mutex_);
    void look(bool anew) LMS_REQUIRES(mutex_);
    std::uint64_t room() LMS_REQUIRES(mutex_);

    const std::unique_ptr<sharing::SharingPage> page_;
    util::Mutex mutex_{util::LockOrder::Table};
    sharing::HostShare own_ LMS_GUARDED_BY(mutex_);  // of all sessions together
    std::uint64_t pinned_bytes_ LMS_GUARDED_BY(mutex_) = 0;
    // As it was then: what all together had pinned, and what they may be promised; and the same of those in
    // this process's cgroup.
    std::uint64_t seen_pinned_bytes_ LMS_GUARDED_BY(mutex_) = 0;
    std::uint64_t all_bytes_ LMS_GUARDED_BY(mutex_) = 0;
    std::uint64_t group_bytes_ LMS_GUARDED_BY(mutex_) = UINT64_MAX;
    util::Clock::time_point looked_ LMS_GUARDED_BY(mutex_){};
    std::atomic<bool> may_come_{false};
    std::atomic<std::uint32_t> seen_changes_{0};
    std::atomic<Clock::rep> write_again_{0};
};

}  // namespace lms::executor
