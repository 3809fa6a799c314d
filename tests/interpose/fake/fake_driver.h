// What tests read of the fake driver: which addresses it has, and what it was last asked and called with.
#pragma once

#include <cstdint>

namespace fake {

// What the functions without a behaviour of their own answer, so that a test can tell which one it reached.
constexpr int kAnswerBase = 5000;

constexpr int kIntegers = 8;
constexpr int kDoubles = 10;

struct Address {
    void* exported;  // what dlsym finds; null if this version of the driver lacks the row
    void* internal;  // another copy of the same function, exported under no name
};

struct Record {
    int calls = 0;  // of functions without a behaviour of their own
    std::int64_t integers[kIntegers] = {};
    double doubles[kDoubles] = {};
    // The last query to either version of cuGetProcAddress.
    int queries = 0;
    char symbol[128] = {};
    int version = 0;
    std::uint64_t flags = 0;
    bool had_status = false;
};

// Exported by the fake driver: an array in the order of entry_points.def (then the rows only a newer driver
// has), and the record.
constexpr const char* kAddressesSymbol = "fake_addresses";
constexpr const char* kRecordSymbol = "fake_record";

// FAKE_PROC_ADDRESS=internal makes cuGetProcAddress answer with the internal copies.
constexpr const char* kProcAddressKnob = "FAKE_PROC_ADDRESS";

}  // namespace fake
