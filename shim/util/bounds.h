// How long the shim waits for what may never come, and how long it looks away meanwhile: all bounds, with
// their reasons.
#pragma once

#include <chrono>

namespace lms::bounds {

using namespace std::chrono_literals;

// For work of the program's, which may wait for the thread that waits for it.

// Until what is missing is used in place. That is slow, and nearly all kernels take less.
constexpr auto kStalledWork = 1s;
// Until memory is not handed over to the driver, for which there is no other way.
constexpr auto kHandOver = 10s;
// Until a fault is looked for without its end: kernels that wait for the program are let run on.
constexpr auto kFault = 100ms;
// Until an allocation has no memory, though others are about to give some back.
constexpr auto kGivenBack = 1s;

// For other threads.

// One that asks the driver about a context, a stream or a capture: its call may wait for work of this
// thread's.
constexpr auto kOtherThread = 1s;
// A launch makes way for a migrator that finds nothing idle: what that waits for might wait for it.
constexpr auto kCourtesy = 30ms;
// A migrator that has found nothing idle for so long is made way for, and makes way for those that move.
constexpr auto kStarving = 10ms;

// For the driver.

// Until it is taken to be gone, with its work, where it answers nothing to whatever it is asked.
constexpr auto kUnanswered = 3s;
// Until one of its refusals stands that may be of the moment.
constexpr auto kRefused = 1s;
// For a trial of moves.
constexpr auto kTrial = 1s;

// For other processes.

// One that is asked about the driver; on a loaded machine it may begin late.
constexpr auto kAskedApart = 20s;
// The same, to be over once it is to end: it may hang in a driver.
constexpr auto kEndedApart = 1s;
// One that holds the live folder: one that goes on takes less.
constexpr auto kLiveFolder = 5s;

// Between two looks.

// At a fence, or for a change: of a migrator, of one with others behind it, at what other threads move.
constexpr auto kGlance = 5ms;
constexpr auto kQuickGlance = 1ms;
// At work that nobody tells about.
constexpr auto kUntold = 200us;
// At a fence whose end is near, doubled from the first to the last.
constexpr auto kFirstLook = 2us;
constexpr auto kLastLook = 100us;
// At whether a capture may begin.
constexpr auto kCapture = 10us;
// At what to bring in while the program waits.
constexpr auto kAhead = 50us;
// At requests from outside while paused.
constexpr auto kRequest = 10ms;
// At a trial's event, and at the work beside it.
constexpr auto kTrialLook = 20us;
// At the live folder.
constexpr auto kFolderLook = 5ms;

}  // namespace lms::bounds
