// What a piece of work reaches, before it is known whose buffers those are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include "shim/device/cuda_api.h"
#include "shim/engine/chunk.h"
#include "shim/session/managed.h"
#include "shim/trace/events.h"

namespace lms::session {

// What a kernel uses as an address, before it is known whether it leads anywhere (access/used_addresses.h).
struct UsedAddress {
    static constexpr std::size_t kWords = 4;

    engine::Address begins = 0;                   // where the access begins; 0: that does not show
    std::array<engine::Address, kWords> words{};  // what had a part in it and may be an address; 0: nothing
    std::array<bool, kWords> in_sum{};            // which of these are in `begins`
    bool written = true;
    bool goes_on = false;  // the next one has more words of the same access
};

struct WorkingSet {
    WorkingSet() = default;
    // With `memory`, which outlives it, for what a kernel's arguments name.
    explicit WorkingSet(std::pmr::memory_resource* memory)
        : addresses(memory), only_read(memory), owners(memory), used(memory) {}

    // Each names the whole buffer it lies in. By the second none is written that only they name.
    std::pmr::vector<engine::Address> addresses;
    std::pmr::vector<engine::Address> only_read;
    std::vector<Range> ranges;
    std::pmr::vector<const void*> owners;  // modules and libraries whose variables it reaches
    std::pmr::vector<UsedAddress> used;    // by kernels, with what the lists above have of it
    bool opaque = false;                   // reaches what it does not name
    bool unseen = false;                   // may do so, and write there: its code cannot be seen
    bool anywhere = false;                 // it may run on other GPUs than its stream's
    bool in_any_stream = false;            // nobody can tell in which it runs, and nothing else is told
    bool own_stream_captured = false;      // then: the calling thread's default stream is, afterwards
    CUstream stream = CU_STREAM_LEGACY;    // never null
    const void* code = nullptr;            // the kernel or graph, as the program names it; null: neither
    std::string label;                     // its name, where a trace is written
    trace::Copied copied;                  // by a copy, there too
};

}  // namespace lms::session
