// A 2D or 3D copy as a value.
#pragma once

#include <bit>

#include "shim/device/cuda_api.h"
#include "shim/session/managed.h"

namespace lms::entry {

// The widest of the driver's descriptors, of which others are a part or another name.
using Box = CUDA_MEMCPY3D_PEER;

inline Box box_from(const CUDA_MEMCPY3D_PEER& copy) {
    return copy;
}
inline Box box_from(const CUDA_MEMCPY3D& copy) {
    return std::bit_cast<Box>(copy);
}
Box box_from(const CUDA_MEMCPY2D& copy);

// The descriptor that the box was made from.
void take(CUDA_MEMCPY3D_PEER& copy, const Box& box);
void take(CUDA_MEMCPY3D& copy, const Box& box);
void take(CUDA_MEMCPY2D& copy, const Box& box);

struct BoxCopy {
    bool waits;       // the host does, for it
    CUstream stream;  // resolved
    CUstream handle;  // as the program gave it
    Box box;

    // Gives it to the driver, or a part of it.
    CUresult (*call)(const BoxCopy& part);
};

// Submits it, in parts where it is larger than the GPU: between slices, between rows, and last within a row.
CUresult submit(const BoxCopy& copy);

}  // namespace lms::entry
