// What LMS_CHECK watches while a program runs: whether an evicted chunk comes back as it went, which work
// fails, and that nobody finds another's contents. (That evicted memory is unmapped then, so that who reaches
// it unnamed faults, is device/host_mapping.h's.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shim/executor/core.h"

namespace lms::executor {

// What is in a block of the GPU's before anything is copied into it, if LMS_CHECK is set: NaN in every
// format. What was not brought in, and what the program reads but never wrote, is so seen not to be what it
// should.
inline constexpr std::uint8_t kPoison = 0xff;
inline bool poisons_blocks(const Settings& settings) {
    return settings.check;
}
// The same of the host's, where the CPU can write it, before it stands for memory that nobody has written.
void poison(const Settings& settings, const Block& host);

// Of what has been copied to the host; nothing unless LMS_CHECK is set and the CPU can read it. No lock
// needed.
std::optional<std::uint64_t> digest_of(const Settings& settings, const Block& host);

// Before the chunk at `address` is copied back from `host`: says so where that is not what it was. No lock
// needed.
void compare_digest(const Settings& settings, engine::Address address, const Block& host,
                    std::optional<std::uint64_t> digest);

// Before a chunk that was clean is evicted, and was copied all the same: says so where the copy, of which
// this is the digest, is not what was kept of it. No lock needed.
void compare_clean(const Settings& settings, engine::Address address, const Block& kept,
                   std::optional<std::uint64_t> digest);

// Behind work that has just been submitted, `fence` its end, null where the driver refused one, as it does of
// work that has failed by then: waits for it, for a while, and says so where nothing works any more: each is
// waited for, so that it, or one that takes long, is what failed. No lock needed.
void name_fault(device::Port& port, const FencePtr& fence, const std::string& what) noexcept;

// A line about what was watched and found, when the process exits.
void tell_verdict_at_exit(const Settings& settings);

}  // namespace lms::executor
