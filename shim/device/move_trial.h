// The trial behind Port::try_moves: memory of the shim's own is written, moved, used where it is, moved back
// and compared.
#pragma once

#include "shim/device/port.h"

namespace lms::device {

// Adds a number to each of so many words and counts them in the one behind, atomically: a kernel of
// kTrialPtx.
inline constexpr const char* kTrialKernel = "lms_trial";
extern const char* const kTrialPtx;

// In the port's context, which is current. Keeps up to 96 KiB of pinned memory, twice where something fails.
// With `kernel` that works in place too; null: none could be loaded, or loading one might wait for the
// program's work.
Trial try_moves_of(Port& port, CUfunction kernel);

}  // namespace lms::device
