// Time: the machine's, or one of the simulated GPU's own (SIMCUDA_CLOCK=simulated), in which every call and
// operation takes what it is modelled to take, however long the machine is about it.
#pragma once

#include <cstdint>
#include <limits>

namespace simcuda::driver {

constexpr std::uint64_t kNoEnd = std::numeric_limits<std::uint64_t>::max();

bool simulated_time();
// In simulated time: the latest that any thread has reached.
std::uint64_t latest_time_ns();

// The calling thread's time. In simulated time each thread of the program has its own, which begins with the
// latest that any has reached.
std::uint64_t now_ns();

// Takes that long: asleep, or by moving the thread's time on.
void spend_ns(std::uint64_t ns);

// Simulated time alone; these do nothing in the machine's:
void begin_call(bool noticed);  // what any call of the driver takes; `noticed` by other processes
void end_call();
std::uint64_t in_order_ns();         // outside of calls: the same, and the time that it is; 0: not simulated
void come_in_order();                // in a call that others notice: waits until they have come here
void begin_clock(std::uint64_t ns);  // no thread is earlier
void wait_until_ns(std::uint64_t ns);  // the thread has waited for what ends then

// A question about `what` was answered with "not yet"; the next work of any to end does so at `next_ns`, or
// kNoEnd: what there is waits for the program. Who asks the same again, having submitted nothing meanwhile,
// gets there in steps that double; they begin anew once something was answered with "yes" that had not been,
// for then there may be something to do.
void asked_too_early(const void* what, std::uint64_t next_ns);
void answered(const void* what);
void submitted();

}  // namespace simcuda::driver
