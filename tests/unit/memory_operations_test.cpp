// Which words stream memory operations name, also those that this tree's headers do not know.
#include "shim/access/memory_operations.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace lms::access {
namespace {

constexpr engine::Address kAt = 0x7f0000001000;

std::vector<engine::Address> named(const CUstreamBatchMemOpParams& operation) {
    std::vector<engine::Address> addresses;
    for (const session::Range& word : words_of({&operation, 1})) {
        CHECK_FALSE(word.only_read);
        addresses.push_back(word.address);
    }
    return addresses;
}

CUstreamBatchMemOpParams of(unsigned type) {
    CUstreamBatchMemOpParams operation;
    std::memset(&operation, 0, sizeof operation);
    operation.operation = static_cast<CUstreamBatchMemOpType>(type);
    return operation;
}

TEST_CASE("memory operations: writes and waits name their word, fences none") {
    for (const auto type : {CU_STREAM_MEM_OP_WRITE_VALUE_32, CU_STREAM_MEM_OP_WRITE_VALUE_64,
                            CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_MEM_OP_WAIT_VALUE_64}) {
        CUstreamBatchMemOpParams operation = of(type);
        operation.writeValue.address = kAt;  // at the same place as a wait's
        operation.writeValue.value64 = 7;
        CHECK(named(operation) == std::vector{kAt});
    }
    CHECK(named(of(CU_STREAM_MEM_OP_BARRIER)).empty());
    CHECK(named(of(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)).empty());
}

// As CUDA 13.1 has it: CU_STREAM_MEM_OP_ATOMIC_REDUCTION.
TEST_CASE("memory operations: one that is not known names whatever it may hold the address of") {
    CUstreamBatchMemOpParams operation = of(8);
    struct Reduction {
        unsigned operation, flags, reduction, type;
        engine::Address address;
        std::uint64_t value;
    };
    const Reduction reduction{8, 0, 1, 0, kAt, 3};
    std::memcpy(&operation, &reduction, sizeof reduction);
    CHECK(std::ranges::count(named(operation), kAt) == 1);
}

}  // namespace
}  // namespace lms::access
