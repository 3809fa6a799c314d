// Memory pools. The driver's pools never see managed memory, so what the program takes from a pool and gives
// back is added up here.
#pragma once

#include <cstdint>
#include <optional>

#include "shim/device/cuda_api.h"
#include "shim/engine/chunk.h"

namespace lms::session {

// Thread-safe, for the process.

// `pool` was created with these properties. Whatever had that handle before is gone.
void note_pool(CUmemoryPool pool, const CUmemPoolProps& properties);
// Tells one pool from others that have had its handle.
std::uint64_t number_of_pool(CUmemoryPool pool);
// That one was destroyed; what was taken from it lives on. Its handle may be another's by now.
void forget_pool(CUmemoryPool pool, std::uint64_t number);

// Whether memory of `pool` can be managed where `device` is the current context's: the device's default pool,
// and those the program created for it of ordinary memory, without a limit and not for other processes.
bool pool_is_managed(CUmemoryPool pool, CUdevice device);

// The device whose pool it is, if it is one whose memory can be managed.
std::optional<CUdevice> device_of_pool(CUmemoryPool pool);

// `bytes` at `address` were taken from `pool`; memory is given back wherever it is from.
void note_taken(CUmemoryPool pool, engine::Address address, std::uint64_t bytes);
void note_given_back(engine::Address address);

// The pool that the managed memory at `address` was taken from, or null.
CUmemoryPool pool_of(engine::Address address);

struct PoolUse {
    std::uint64_t bytes = 0;  // managed, taken and not given back
    // The most since the start, or since reset_high of that.
    std::uint64_t used_high = 0;
    std::uint64_t reserved_high = 0;
};
PoolUse pool_use(CUmemoryPool pool);
void reset_high(CUmemoryPool pool, std::uint64_t PoolUse::*high);

}  // namespace lms::session
