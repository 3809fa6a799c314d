// The trial behind Port::try_moves. It writes memory of the shim's own, moves it, uses it in place, moves it
// back and compares it.
#pragma once

#include <memory>
#include <optional>

#include "shim/device/port.h"
#include "shim/util/mutex.h"

namespace lms::device {

// Adds a number to each of so many words and counts them in the one behind, atomically: a kernel of
// kTrialPtx.
inline constexpr const char* kTrialKernel = "lms_trial";
extern const char* const kTrialPtx;

class MoveTrial {
  public:
    explicit MoveTrial(Port& port);
    ~MoveTrial();

    // In the port's context, which is current. Keeps up to 96 KiB of pinned memory, twice where something
    // fails. With `kernel` that works in place too; null: none could be loaded, or loading one might wait for
    // the program's work.
    Trial run(const std::optional<TrialMemory>& memory, CUfunction kernel);
    // Releases the memory of a trial that did not finish. Nothing of the port runs any more.
    void give_back();
    // The same in two steps, of which the first calls no driver.
    void leave();
    void settle();

  private:
    class Memory;
    class Run;
    struct Step;
    Step run_once(bool mapped, const std::optional<TrialMemory>& memory, CUfunction kernel);
    Step run_twice(bool mapped, const std::optional<TrialMemory>& memory, CUfunction kernel);
    Trial judge(const std::optional<TrialMemory>& memory, CUfunction kernel);

    Port& port_;
    std::unique_ptr<Memory> late_;
    util::Mutex lock_{util::LockOrder::Leaf};
    std::unique_ptr<Memory> left_ LMS_GUARDED_BY(lock_);  // and those before it
};

}  // namespace lms::device
