// How much device memory the shim may take.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "shim/executor/core.h"
#include "shim/executor/session_lock.h"

namespace lms::executor {

// What managed memory may take of each GPU at most, as the program or its user has said since it began; 0:
// nobody has.
inline constinit std::atomic<std::uint64_t> limit_now{0};

// What stays free for the driver when LMS_RESERVE does not say: a 64th of the device, at most 512 MiB.
std::uint64_t default_reserve(std::uint64_t total_bytes);

// Looks at the device and brings the engine's budget_bytes() up to date: the device's memory, capped by
// LMS_LIMIT, less the reserve, less what others hold; instead of LMS_LIMIT, limit_now; at most granted_bytes.
// The last two never leave less than must be there for the host has no room for more. Drops `lock` around the
// driver call.
CUresult refresh_budget(Core& core, SessionLock& lock) LMS_LOCKED;

// Raises the budget to what processes that know nothing of this one have given back since; looks once a
// second at most. Drops `lock` around the driver call.
void look_for_room(Core& core, SessionLock& lock) LMS_LOCKED;

// Where a trace is written, looks how much of the GPU is not managed: once a second at most, more often at
// first. Drops `lock` around the driver call.
void look_at_unmanaged(Core& core, SessionLock& lock) LMS_LOCKED;

class GpuShare;
// Looks at what other processes have of the GPU, and brings granted_bytes and the budget up to date. `in_use`
// as GpuShare::Levels has it. Drops `lock` around driver calls.
CUresult refresh_grant(Core& core, GpuShare& share, SessionLock& lock, bool in_use = true) LMS_LOCKED;

// What of the GPU this process cannot give up, for LMS_HOST_LIMIT has no room for it; 0: no other uses it.
std::uint64_t least_of_grant(const Core& core) LMS_LOCKED;

// Bytes on the device or the host have changed: others and the user are told.
void note_levels(Core& core) LMS_LOCKED;

// What managed memory may take when it is used: in this process's turn, where turns are taken (gpu_share.h).
// What is large, or cut into chunks, is so whoever's turn it is.
std::uint64_t budget_in_turn(const Core& core) LMS_LOCKED;

// Bytes of device memory that are held beyond what limit_now and granted_bytes leave.
std::uint64_t excess_bytes(const Core& core) LMS_LOCKED;

// Bytes of host memory that may be pinned in all: within LMS_HOST_LIMIT what is held, what has been promised
// (which is given whatever else happens), and what the machine could spare at most `age` ago.
std::uint64_t host_bytes(const Core& core, std::chrono::milliseconds age) LMS_LOCKED;

// Of host memory beside other processes (host_claims.h); where the machine is not shared they do nothing.
//
// Whether `bytes` may be pinned in all. What is claimed for that is to be used, or settled, before the lock
// goes.
bool claim_host(Core& core, std::uint64_t bytes) LMS_LOCKED;
// Tells others what is pinned, and has been promised to buffers.
void settle_host(Core& core) LMS_LOCKED;
// What of the host is pinned beyond what buffers have there or were promised.
std::uint64_t returnable_host_bytes(const Core& core) LMS_LOCKED;
// Gives back what others lack, of that: free blocks and retained copies. How many bytes it was.
std::uint64_t give_back_host(Core& core, std::uint64_t lacking, SessionLock& lock) LMS_LOCKED;

// Gives back to the driver what no buffer has needed since the last call, of the host and of the GPU.
void give_back_idle(Core& core, SessionLock& lock) LMS_LOCKED;

// Whether `bytes` more may be allocated: within capacity_bytes(), and beyond the budget within what the
// machine can spare, which is claimed.
bool has_capacity(Core& core, std::uint64_t bytes) LMS_LOCKED;

// What the program is told a device of `total_bytes` has in all, by LMS_LIMIT and LMS_MEMINFO.
std::uint64_t visible_total(std::uint64_t total_bytes, const Settings& settings);

// What the program is told it has, by LMS_MEMINFO. Drops `lock` around the driver call.
CUresult visible_memory(Core& core, SessionLock& lock, device::MemoryInfo& info) LMS_LOCKED;

}  // namespace lms::executor
