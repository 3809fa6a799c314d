// Calls that come from libraries whose memory is left alone (LMS_EXEMPT): communication libraries register
// theirs with network cards and other GPUs.
#pragma once

namespace lms::access {

// Whether such a library is among the callers of this thread. Costs next to nothing where none is loaded,
// else an unwinding of the stack. No lock may be held: it takes the dynamic loader's. Never throws.
bool called_by_exempt() noexcept;

}  // namespace lms::access
