// In simulated time: processes on the same GPUs do what others notice in one order, that of time.
//
// Each process says how far it is: its bound, before which it will do nothing that others notice. That is the
// earliest of what its latest caller may do next and of the work that it has submitted and not timed. What is
// to happen at a time waits, by the machine's clock, until the bounds of all others are there; at equal times
// the lower process number comes first. So it does not matter how fast the machine gets on with which.
//
// A process that may be waiting for another is passed over, until its bound moves: when its threads sleep
// outside of the driver, or after kPatience. Its time then goes on from where the others are.
#pragma once

#include <chrono>
#include <cstdint>

#include "tools/simcuda/driver/shared/page.h"

namespace simcuda::driver::shared {

inline constexpr std::chrono::nanoseconds kAsleep = std::chrono::milliseconds(5);
inline constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(5);

// Whether this process is in such an order. Nothing below is called otherwise, but for the first.
bool in_order();

// Waits for the processes that are to begin together (SIMCUDA_PROCESSES). Returns the time that the others
// have reached.
std::uint64_t begin_order();

// The calling thread is in a call, at `ns`. Returns its time, which is later where the others went on without
// this process.
std::uint64_t call_begins(std::uint64_t ns);
void call_ends();
std::uint64_t reach(std::uint64_t ns);  // the same within a call

// The calling thread waits for work; woken() has what it got as the time at which that ends.
const void* wait_for_work();
void woken(const void* waiter, std::uint64_t ns);

// The first work that has not been timed begins then; kNoEnd: there is none.
void set_next_work(std::uint64_t begins_ns);
std::uint64_t next_work();

// Whether all others, and the threads of this process, have come to `ns`.
bool is_next(std::uint64_t ns);
// Blocks until all others have.
void await_others(std::uint64_t ns);

// For the thread that times what is held up: how often anything has changed; blocks until more has, or `ns`
// has come (kNoEnd: until something is to be looked at).
std::uint32_t changes();
void await_change(std::uint32_t seen, std::uint64_t ns);
void look_again();

// Takes a part of a device for `ns`, behind what was taken in order. Returns the end.
std::uint64_t take_part(Number& until, std::uint64_t from, std::uint64_t ns);
// A kernel of this process begins at `from` or when those of others have ended.
std::uint64_t begin_kernel(const SharedDevice& device, std::uint64_t from);
void end_kernel(SharedDevice& device, std::uint64_t end);

}  // namespace simcuda::driver::shared
