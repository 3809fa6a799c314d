// What a value in PTX may be, as far as a look at addresses needs, and what comes of computing with two of
// them.
#pragma once

#include <array>
#include <cstdint>

namespace lms::code {

// What a value may be. A set of these; the empty set is a value that was never seen.
using Kinds = std::uint8_t;
inline constexpr Kinds kNumber = 1;  // derived from constants, thread ids and sizes
inline constexpr Kinds kPointer =
    2;  // derived from a pointer that is an argument, or from a variable's address
inline constexpr Kinds kLoaded =
    4;  // loaded from memory: a number, or a pointer that the arguments do not show
inline constexpr Kinds kWidened =
    8;  // such a value of 32 bits, made one of 64: a number, unless shifted back up
inline constexpr Kinds kScratch = 16;    // address of local or shared memory
inline constexpr Kinds kParameter = 32;  // address of an argument
// Computed of a loaded value: an index, unless it is used as an address as it is.
inline constexpr Kinds kComputed = 64;
inline constexpr std::array kEach{kNumber, kPointer, kLoaded, kWidened, kScratch, kParameter, kComputed};
// An argument of 64 bits that does not say what it is.
inline constexpr Kinds kArgument = kPointer | kNumber;

// Of a sum: an offset added to a pointer is a pointer.
constexpr Kinds sum(Kinds a, Kinds b) {
    if (a == b) return a;
    const Kinds both = a | b;
    if (both == (kPointer | kScratch)) return both;
    if (both == (kWidened | kComputed)) return kComputed;
    for (const Kinds kind : {kPointer, kScratch, kParameter, kLoaded, kWidened}) {
        if (both & kind) return kind;
    }
    return kNumber;
}

// The difference of two pointers is an offset.
constexpr Kinds difference(Kinds a, Kinds b) {
    switch (b) {
        case kNumber:
        case kWidened:
        case kComputed:
            return a;
        case kLoaded:
            return a == kPointer ? kPointer | kNumber : a | kNumber;
        default:
            return a == kNumber || a == kWidened ? kNumber : a | kNumber;
    }
}

template <typename Combine>
constexpr Kinds pairwise(Kinds a, Kinds b, Combine&& combine) {
    Kinds result = 0;
    for (const Kinds one : kEach) {
        for (const Kinds other : kEach) {
            if ((a & one) && (b & other)) result |= combine(one, other);
        }
    }
    return result;
}

}  // namespace lms::code
