// What a value in PTX may be, as far as a look at addresses needs, and what comes of computing with two of
// them.
#pragma once

#include <array>
#include <cstdint>

namespace lms::code {

// What a value may be. A set of these; the empty set is a value that was never seen.
using Kinds = std::uint16_t;
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
inline constexpr Kinds kSize = 128;  // an argument, if that is a number
// From a pointer to what was loaded or computed: an offset, unless it is added to that pointer again.
inline constexpr Kinds kDistance = 256;
inline constexpr std::array kEach{kNumber,    kPointer,  kLoaded, kWidened, kScratch,
                                  kParameter, kComputed, kSize,   kDistance};
// An argument of 64 bits that does not say what it is.
inline constexpr Kinds kArgument = kPointer | kSize;

// Of a sum: an offset added to a pointer is a pointer.
constexpr Kinds sum(Kinds a, Kinds b) {
    if (a == b) return a;
    const Kinds both = a | b;
    if (both == (kPointer | kScratch)) return both;
    if (both == (kWidened | kComputed)) return kComputed;
    if (both == (kPointer | kDistance)) return kLoaded;
    for (const Kinds kind :
         {kPointer, kScratch, kParameter, kLoaded, kWidened, kDistance, kSize, kComputed}) {
        if (both & kind) return kind;
    }
    return kNumber;
}

// The difference of two pointers is an offset.
constexpr Kinds difference(Kinds a, Kinds b) {
    switch (b) {
        case kNumber:
        case kSize:
            return a;
        case kWidened:
        case kComputed:
        case kDistance:
            return a == kNumber ? kComputed : a;
        case kLoaded:
            return a == kNumber ? kComputed : a == kSize ? kSize : a | kNumber;
        default:
            if (b == kPointer && (a == kLoaded || a == kComputed)) return kDistance;
            return a == kNumber || a == kSize || a == kWidened ? kNumber : a | kNumber;
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
