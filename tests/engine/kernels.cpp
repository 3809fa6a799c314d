#include "tests/engine/kernels.h"

#include <algorithm>
#include <random>

namespace lms::fake {

namespace {

std::uint8_t mixed(std::uint8_t old, std::uint8_t other, std::uint64_t index, std::uint64_t seed) {
    const std::uint64_t word =
        (std::uint64_t{old} * 0x100 + other + index * 0x10001 + seed) * 0x9E3779B97F4A7C15ull;
    return static_cast<std::uint8_t>(word >> 48);
}

// Work over [0, bytes) in pieces; `part(memory, offset, count)` does one.
template <typename Part>
Kernel in_pieces(std::uint64_t bytes, Part part) {
    const std::uint64_t piece = std::max<std::uint64_t>(16, bytes / 3);
    return [=, done = std::uint64_t{0}](Memory& memory) mutable {
        const std::uint64_t count = std::min(piece, bytes - done);
        part(memory, done, count);
        done += count;
        return done == bytes;
    };
}

}  // namespace

Bytes noise(std::uint64_t seed, std::uint64_t count) {
    std::mt19937_64 random(seed);
    Bytes bytes(count);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
}

void mix(Bytes& target, const std::vector<const Bytes*>& sources, std::uint64_t seed) {
    for (std::size_t i = 0; i < target.size(); ++i) {
        target[i] = mixed(target[i], 0, i, seed);
        for (const Bytes* source : sources) {
            target[i] = mixed(target[i], (*source)[i % source->size()], i, seed);
        }
    }
}

Kernel mix_kernel(Region target, std::vector<Region> sources, std::uint64_t seed) {
    return in_pieces(target.bytes, [=](Memory& memory, std::uint64_t offset, std::uint64_t count) {
        for (std::uint64_t i = offset; i < offset + count; ++i) {
            std::uint8_t value = 0;
            memory.read(target.address + i, &value, 1);
            value = mixed(value, 0, i, seed);
            for (const Region& source : sources) {
                std::uint8_t other = 0;
                memory.read(source.address + i % source.bytes, &other, 1);
                value = mixed(value, other, i, seed);
            }
            memory.write(target.address + i, &value, 1);
        }
    });
}

Kernel write_kernel(Address target, Bytes bytes) {
    const std::uint64_t size = bytes.size();
    return in_pieces(
        size, [target, bytes = std::move(bytes)](Memory& memory, std::uint64_t offset, std::uint64_t count) {
            memory.write(target + offset, bytes.data() + offset, count);
        });
}

Kernel read_kernel(Region source, SharedBytes result) {
    return in_pieces(source.bytes,
                     [source, result](Memory& memory, std::uint64_t offset, std::uint64_t count) {
                         memory.read(source.address + offset, result->data() + offset, count);
                     });
}

Kernel copy_kernel(Address target, Address source, std::uint64_t bytes) {
    return in_pieces(bytes, [=](Memory& memory, std::uint64_t offset, std::uint64_t count) {
        Bytes carried(count);
        memory.read(source + offset, carried.data(), count);
        memory.write(target + offset, carried.data(), count);
    });
}

Kernel both(Kernel first, Kernel second) {
    return [=, ended = false](Memory& memory) mutable {
        if (ended) return second(memory);
        ended = first(memory);
        return false;
    };
}

Kernel gate(std::shared_ptr<std::atomic<bool>> open) {
    return [open](Memory&) { return open->load(); };
}

}  // namespace lms::fake
