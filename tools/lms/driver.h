// The CUDA driver and the GPUs behind it, as doctor sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lms::tool {

struct Gpu {
    std::string name;
    std::string bus_id;
    std::uint64_t memory_bytes = 0;
    bool virtual_memory = false;  // the VMM calls the shim lives on
    bool maps_host = false;       // host memory behind a device address: evicted memory stays reachable
    std::string verdict;          // of a trial (self_check.h); empty: none was made
};

struct Driver {
    std::string path;     // of the library; empty if none was found
    std::string problem;  // one line; empty if all calls worked
    int version = 0;      // as cuDriverGetVersion: 13000 is CUDA 13.0
    std::vector<Gpu> gpus;
};

// Loads the driver at `path`, or the one the dynamic loader finds if that is empty, and asks it.
Driver inspect_driver(const std::string& path);

}  // namespace lms::tool
