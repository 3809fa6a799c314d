// How long the shim waits for an event that may never come, and how often it looks meanwhile. Every bound,
// with its reason.
#pragma once

#include <chrono>

namespace lms::bounds {

using namespace std::chrono_literals;

// Work of the program's may itself wait for the thread that waits for it.

// A launch waits so long for unfinished work, then uses what is missing in place, which is slow. Nearly all
// kernels take less.
constexpr auto kStalledWork = 1s;
// A launch waits so long for memory that streams have yet to free, then evicts.
constexpr auto kFrees = 100ms;
// A call that gives memory to the driver (an export, a handle) waits so long, then is refused: there is no
// other way.
constexpr auto kHandOver = 10s;
// LMS_CHECK waits so long for work, then looks for a fault without its end: kernels that wait for the program
// run on.
constexpr auto kFault = 100ms;
// An allocation waits so long for memory that frees or moves are about to give back, then is out of memory.
constexpr auto kGivenBack = 1s;

// Other threads may be in the driver, in a call that waits for work of this thread's.

// The end of a context or stream, and the beginning of a capture, wait so long for threads that ask the
// driver about it. So does a free for a call that may end a context.
constexpr auto kOtherThread = 1s;
// Work of a thread waits so long for a graph that another launches node by node into the same stream, from
// one node to the next: a node may be a copy of much of the host.
constexpr auto kPieces = 10s;
// A launch that has all it needs makes way so long for a thread that finds nothing idle to move.
constexpr auto kCourtesy = 30ms;
// A thread that has found nothing idle for so long is made way for, and makes way for those that can move
// something.
constexpr auto kStarving = 10ms;

// The driver.

// A driver that answers no query for so long counts as unloaded, and its work as complete.
constexpr auto kUnanswered = 3s;
// A refusal that may be of the moment is tried again for so long.
constexpr auto kRefused = 1s;
// A trial of moves takes so long at most.
constexpr auto kTrial = 1s;

// Other processes.

// A process that asks the driver in our place: on a loaded machine it may begin late.
constexpr auto kAskedApart = 20s;
// Its end by itself once it has answered: a context takes tenths of a second to go.
constexpr auto kEndsApart = 5s;
// Its end, after the signal to end: it may hang in the driver.
constexpr auto kEndedApart = 1s;
// A process that holds the live folder's lock: one that runs holds it for less.
constexpr auto kLiveFolder = 5s;

// A launch that waits for its process's turn on a GPU goes on after so long, whatever others or the page say.
constexpr auto kTurn = 60s;
// A process whose turn it is waits so long for others to give back what is its own by now, then evicts from
// its own.
constexpr auto kGivenByOthers = 50ms;
// So long what is moved is compared with what the link carries.
constexpr auto kLinkWatch = 50ms;

// Between two looks.

// A fence, or a change of the session: for a thread that moves alone.
constexpr auto kGlance = 5ms;
// The same where others wait behind it, or for what another thread moves just now.
constexpr auto kQuickGlance = 1ms;
// Work from before pressure, whose end no thread tells.
constexpr auto kUntold = 200us;
// A fence: the first two looks, and the longest that this is doubled to.
constexpr auto kFirstLook = 2us;
constexpr auto kLastLook = 100us;
// Whether another thread has submitted all of a graph.
constexpr auto kPiece = 20us;
// Whether a capture may begin, or has begun.
constexpr auto kCapture = 10us;
// What to bring in while the program waits for the GPU.
constexpr auto kAhead = 50us;
// What other processes on the GPU have, while there are any.
constexpr auto kShareLook = 10ms;
// The same for a process whose program makes no calls.
constexpr auto kIdleLook = 50ms;
// The same where there are none; a process that comes ends it.
constexpr auto kAlone = 24h;
// Whether others lack host memory, for a process whose program makes no calls and that has some to give.
constexpr auto kIdleHostLook = 200ms;
// What memory no buffer has needed since: it goes back to the driver. Programs use again within less what
// they free for that, or their allocators keep it. It is also how often a process is seen to live
// (sharing/page.h, kUnseen).
constexpr auto kIdleMemory = 10s;
// Whether programs without the shim have given back memory of a GPU that is too small.
constexpr auto kRoomLook = 1s;
// What a GPU holds that is not managed, for the trace: the first look, doubled from one to the next, and the
// longest. Code is loaded by first launches.
constexpr auto kFirstUnmanagedLook = 1ms;
constexpr auto kLastUnmanagedLook = 1s;
// What the host has left, where that decides about more than one block.
constexpr auto kHostLook = 100ms;
// Whether others have given back host memory, or stopped asking for it.
constexpr auto kHostGiven = 1ms;
// Other processes, for a launch that waits for its turn.
constexpr auto kTurnLook = 1ms;
// Whether this process uses its turn, while its program makes no calls.
constexpr auto kTurnUse = 1ms;
// News of other processes, for a helper in simulated time: a thread would be woken by them.
constexpr auto kSimulatedNews = 1ms;
// What others give back.
constexpr auto kGivenLook = 200us;
// Requests of `lms set`, while paused.
constexpr auto kRequest = 10ms;
// The event of a trial, and the work beside it.
constexpr auto kTrialLook = 20us;
// The live folder's lock.
constexpr auto kFolderLook = 5ms;

}  // namespace lms::bounds
