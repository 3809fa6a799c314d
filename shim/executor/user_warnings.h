// Messages for the user, once each: one line of at most 160 characters that says what happened, what it costs
// and what to do. Session's lock held, if there is one.
#pragma once

#include <cstdint>

#include "shim/executor/state.h"

namespace lms::shim {

// The first eviction, or the first allocation beyond the GPU.
void announce_pressure(State& state) LMS_LOCKED;

// A launch works on `missing_bytes` of the `bytes` it names in host memory; `late`: because unfinished work
// holds the GPU's memory.
void announce_in_place(std::uint64_t missing_bytes, std::uint64_t bytes, bool late);

// A launch has waited for as long as it should, and waits on.
void announce_wait(const State& state);

// A trial of moves has shown that contents are lost, in place or altogether.
void announce_distrust(const State& state, const device::Trial& trial) LMS_LOCKED;

// The driver's remaps wait for all work that is unfinished.
void announce_remaps_wait(const State& state);

// A launch that names `bytes` fails: more than the GPU has room for, and it cannot reach host memory.
void announce_too_large(const State& state, std::uint64_t bytes) LMS_LOCKED;

// An allocation of `bytes` fails: GPU and host limit together are full, or no more host memory is to be had.
void announce_no_capacity(const State& state, std::uint64_t bytes) LMS_LOCKED;
void announce_no_host_memory(const State& state, std::uint64_t bytes) LMS_LOCKED;

// Something could not be mapped: whether it may have been one mapping too many for the kernel. No lock
// needed.
bool announce_no_mappings();

// The program's pins, of so many bytes, are given up, for work cannot run beside them.
void announce_pins_given_up(std::uint64_t bytes);

// The context has failed for good, as all its calls say: what moved when that was noticed.
void announce_failure(const State& state, CUresult error) LMS_LOCKED;

// Where LMS_RESERVE, LMS_LIMIT or other processes leave nothing of a GPU of `total_bytes`.
void announce_no_budget(const State& state, std::uint64_t total_bytes) LMS_LOCKED;

// A GPU of `total_bytes` is not served, for its and the host's memory find no addresses.
void announce_no_addresses(CUdevice device, std::uint64_t total_bytes, std::uint64_t host_bytes);

// Where LMS_HOST_LIMIT is more than there is.
void announce_host_limit(const Settings& settings, std::uint64_t in_force_bytes);

}  // namespace lms::shim
