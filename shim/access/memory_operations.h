// Stream memory operations: values that a stream writes, or waits for, in memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "shim/session/submit.h"

namespace lms::access {

// Those of a batch. The driver takes fewer, and refuses more, or none at all, without a look at them.
inline std::span<const CUstreamBatchMemOpParams> operations_of(const CUstreamBatchMemOpParams* batch,
                                                               unsigned count) {
    constexpr unsigned kMost = 256;
    return {batch, !batch || count >= kMost ? 0 : count};
}

// The words that operations write and wait for, and what may be such; any addresses.
inline std::vector<session::Range> words_of(std::span<const CUstreamBatchMemOpParams> operations) {
    std::vector<session::Range> words;
    for (const CUstreamBatchMemOpParams& each : operations) {
        switch (each.operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                words.push_back({each.waitValue.address, 4});
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                words.push_back({each.waitValue.address, 8});
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                words.push_back({each.writeValue.address, 4});
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                words.push_back({each.writeValue.address, 8});
                break;
            case CU_STREAM_MEM_OP_BARRIER:
            case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
                break;
            default:
                // One that later drivers know, as that of CUDA 13.1 which adds to a word: what it names is
                // among what follows its type and flags.
                for (const engine::Address word : std::span(each.pad).subspan(1)) words.push_back({word, 4});
                break;
        }
    }
    return words;
}

// A word of 8 bytes that is written, as an address may be.
struct WrittenWord {
    engine::Address at;
    std::uint64_t value;
};
inline std::vector<WrittenWord> written_by(std::span<const CUstreamBatchMemOpParams> operations) {
    std::vector<WrittenWord> words;
    for (const CUstreamBatchMemOpParams& each : operations) {
        if (each.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            words.push_back({each.writeValue.address, each.writeValue.value64});
    }
    return words;
}

inline bool any_waits(std::span<const CUstreamBatchMemOpParams> operations) {
    return std::any_of(operations.begin(), operations.end(), [](const CUstreamBatchMemOpParams& each) {
        return each.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
               each.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    });
}

}  // namespace lms::access
