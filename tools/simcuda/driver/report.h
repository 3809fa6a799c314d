// What happened, counted: SIMCUDA_REPORT and SIMCUDA_LOG.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/entry_table.h"

namespace simcuda::driver {

struct Traffic {
    std::atomic<std::uint64_t> host_to_device{0}, device_to_host{0}, device_to_device{0},
        host_to_host{0};  // bytes
};

Traffic& traffic();

// Counts a call and returns its number among the calls of that name, from 1.
std::uint64_t count_call(Entry entry);
std::uint64_t count_base(const char* base);  // over all ABI versions and forms of a name

void log_call(Entry entry, CUresult result);
void log_line(const char* text);

// A rule the program broke that a GPU would let pass or punish later; kept (the first 1,000) for the report.
void violation(std::string what);

// Called once by the kernel engine per launch that ran.
void count_launch();

// Makes the report be written at exit. Idempotent.
void start_report();
// Writes it now, if there is to be one.
void write_report();

}  // namespace simcuda::driver
