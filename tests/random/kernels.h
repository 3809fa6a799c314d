// The kernels of programs, and what they do, for the model.
#pragma once

#include <cstdint>
#include <string>

namespace rnd {

// mix(to, a, b, at, n, k), section(the same of addresses less 4 times lower), tagged(of addresses with a tag
// in their upper bits), packed(struct of them), table(addresses, at, n, k), hidden(the same with every bit
// of the addresses flipped), add(to, at, n, k), fill(to, n, k).
std::string kernel_text();

inline std::uint32_t mixed(std::uint32_t to, std::uint32_t a, std::uint32_t b, std::uint32_t i,
                           std::uint32_t k) {
    return to * 0x9E3779B1u + (a ^ (b * 3)) + k + i;
}

inline std::uint32_t filled(std::uint32_t i, std::uint32_t k) {
    return i * 0x85EBCA6Bu + k;
}

// The argument of `packed`: addresses among other things.
struct Packed {
    std::uint32_t at, n, k, pad;
    std::uint64_t to;
    std::uint64_t junk[2];
    std::uint64_t a, b;
};

}  // namespace rnd
