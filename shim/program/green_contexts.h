// The program's green contexts: parts of a GPU's processors with streams of their own, over the primary
// context and its memory. One may be current to one thread at a time, and the shim's threads are the
// program's: so it works through the primary context in their place, and asks nothing of their streams later.
// From the first on all work is looked at as it is submitted.
#pragma once

#include <atomic>
#include <optional>

#include "shim/device/cuda_api.h"

namespace lms::program {

namespace detail {
inline constinit std::atomic<bool> any_green{false};
}

// Thread-safe, for the process.
void green_made(CUgreenCtx green, CUdevice device);
// `context` is how the program calls it where a context is asked for.
void green_converted(CUgreenCtx green, CUcontext context);
struct GreenContext {
    CUdevice device;
    CUcontext context = nullptr;  // null: it was never converted
};
std::optional<GreenContext> find_green(CUgreenCtx green);
void forget_green(CUgreenCtx green);

// There is one, or was.
inline bool any_green() {
    return detail::any_green.load(std::memory_order_acquire);
}
// The primary context where that is a green one, else the same.
CUcontext owner_of(CUcontext context);

}  // namespace lms::program
