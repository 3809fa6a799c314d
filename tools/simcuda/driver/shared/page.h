// The page of processes that are on the same simulated GPUs; SIMCUDA_SHARED names its file.
//
// Numbers alone are shared: which processes there are, how much memory each has, until when parts of the GPUs
// are taken. The memory itself is each process's own. A process may end at any moment, also with the page's
// lock: each number is one word, and whatever is true between two writes may stay. What a process had is the
// others' as soon as one of them looks.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/simcuda/driver/shared/process.h"

namespace simcuda::driver::shared {

inline constexpr std::size_t kMostProcesses = 64, kMostDevices = 16;
inline constexpr std::size_t kHost = kMostDevices;  // the place of the host's page-locked memory

using Number = std::atomic<std::uint64_t>;

// What a process says of itself. Read by any thread of any process; written by its own and, where it has
// ended, under the page's lock by who finds that out.
struct Slot {
    std::atomic<std::int32_t> process;  // 0: free. Written last
    Number started, stack;              // Identity
    Number used[kMostDevices + 1];      // bytes of each device's memory, and of the host's
    Number kernels[kMostDevices];       // that run or wait for a turn, and threads that help them (turns.h)
    // order.h:
    Number bound, work;          // of what the process may do next; of that its work alone
    Number passed, passed_work;  // bounds of those that others do not wait for
    Number outside;              // whether the bound is that of a thread that is in no call

    Identity identity() const { return {process, started, stack}; }
};

// What those on one page must have in common.
struct Machine {
    std::uint64_t devices, memory, host_memory, multiprocessors, simulated_time;
    double up_gbps, down_gbps;

    friend bool operator==(const Machine&, const Machine&) = default;
};

// What processes take of a device one after another, in nanoseconds.
struct SharedDevice {
    // By the machine's clock:
    Number link_until[2];  // to the device, from it
    Number holder;         // of the turn: the number of a slot
    Number turn_began;
    // In simulated time:
    Number part_until[4];  // the parts of GpuResources (cost.h)
    Number kernels_of;     // a process
    Number kernels_until;
};

struct Page {
    std::array<char, 8> mark;
    std::uint32_t version, bytes;
    Machine machine;
    pthread_mutex_t mutex;  // robust, of all processes
    // order.h:
    Number now;                          // what has come in order is not before this
    Number wanted;                       // the lowest bound that is waited for
    std::atomic<std::uint32_t> changes;  // a futex
    std::atomic<std::uint32_t> begun;
    SharedDevice devices[kMostDevices];
    Slot slots[kMostProcesses];
};

// Joins the page that SIMCUDA_SHARED names, once for the process, if it names one. A page that cannot be used
// is named on stderr, and the process has GPUs of its own. Not thread-safe.
void join();

// A forked child, which has no driver, is on no page.
void leave();

Page* page();  // null: the process has GPUs of its own
Slot* own_slot();

// Held for moments, while nothing else is waited for.
class PageLock {
  public:
    explicit PageLock(Page& page = *shared::page());
    ~PageLock();
    PageLock(const PageLock&) = delete;
    PageLock& operator=(const PageLock&) = delete;

  private:
    Page& page_;
};

// Frees the slots of processes that have ended, under the lock.
void free_slots_of_ended(Page& page);

// Takes memory for this process if all of `place` that processes have stays within `limit`.
bool take(std::size_t place, std::uint64_t bytes, std::uint64_t limit);
void give_back(std::size_t place, std::uint64_t bytes);
std::uint64_t used_by_all(std::size_t place);

// For who is on no page, such as the management library: the processes that have memory of a device. Nothing
// where there is no page that can be used.
struct User {
    std::int32_t process;
    std::uint64_t bytes;
};
std::vector<User> users(std::size_t device);

}  // namespace simcuda::driver::shared
