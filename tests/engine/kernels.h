// Kernels of the fake GPU: functions of bytes whose every result depends on every operand, and the same
// functions over plain vectors, for the model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/fake_port.h"

namespace lms::fake {

using Bytes = std::vector<std::uint8_t>;
using SharedBytes = std::shared_ptr<Bytes>;

struct Region {
    Address address;
    std::uint64_t bytes;
};

// `count` bytes that depend on the seed alone.
Bytes noise(std::uint64_t seed, std::uint64_t count);

// target[i] becomes a function of itself, of one byte of each source, of i and of the seed.
void mix(Bytes& target, const std::vector<const Bytes*>& sources, std::uint64_t seed);
Kernel mix_kernel(Region target, std::vector<Region> sources, std::uint64_t seed);

Kernel write_kernel(Address target, Bytes bytes);
Kernel read_kernel(Region source, SharedBytes result);  // result has room for it
Kernel copy_kernel(Address target, Address source, std::uint64_t bytes);

// One after the other.
Kernel both(Kernel first, Kernel second);
// Runs until `*open`.
Kernel gate(std::shared_ptr<std::atomic<bool>> open);

}  // namespace lms::fake
