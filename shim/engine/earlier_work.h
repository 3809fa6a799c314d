// Work that was submitted unseen, before anything moved or by a call that the shim does not know, and that is
// not known to be over (executor/pressure.h finds out).
#pragma once

#include <cstdint>
#include <vector>

#include "shim/engine/chunk.h"

struct CUstream_st;
struct CUctx_st;

namespace lms::engine {

// Guarded by the session's lock.
struct EarlierWork {
    struct In {
        StreamKey key;
        CUstream_st* stream;  // null: the legacy default stream of `context`
        CUctx_st* context;    // null: the GPU's own
        std::uint64_t listing;
    };
    std::vector<In> streams;
    bool entering = false;    // some thread that was let through may not be back from the driver
    bool asking = false;      // a thread is, without the lock
    std::uint64_t begun = 0;  // how often pressure has: streams of another time may have the same keys
    // How often streams were listed. What was entered in one before its latest listing tells nothing of it.
    std::uint64_t listings = 0;

    // captures_since_none() when legacy streams were last fenced, or seen idle, because a capture was about
    // to begin or to reach a blocking stream: while that forbids to ask for them, no thread may use them
    // either. 0 if they could not be fenced.
    std::uint64_t legacy_over_at = 0;

    bool any() const { return entering || !streams.empty(); }
};

}  // namespace lms::engine
