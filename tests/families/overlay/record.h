// What tests read of the overlay driver.
#pragma once

#include <vector>

#include "shim/device/cuda_api.h"

namespace overlay {

struct Hint {
    CUdeviceptr address;
    int location;  // id, -1 without one
};

struct Record {
    std::vector<Hint> hints;  // of the last batch
    int hint_calls = 0;
    int exports = 0;     // calls that share memory with others
    unsigned block = 0;  // threads of a block of legacy launches
};

// A batch of hints that has this address is refused.
constexpr CUdeviceptr kRefused = 0x1000;

constexpr const char* kRecordSymbol = "overlay_record";

}  // namespace overlay

// Exported by the overlay.
extern "C" {
extern overlay::Record overlay_record;
// From now on the simulated driver is gone, as the real one is late in a process's exit.
void overlay_deinitialize();
}
