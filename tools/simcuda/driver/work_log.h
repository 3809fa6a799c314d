// SIMCUDA_WORK: what each kernel did and when, and when the program waited, in simulated time. `lms plan`
// works out from it how long the kernels take on other GPUs.
//
// A line each, in order of submission; AT by CLOCK_MONOTONIC, other times simulated, all in nanoseconds:
//   kernel AT SUBMITTED ENDED OPERATIONS BYTES THREADS NAME      also each kernel of a graph, launched then
//   wait FROM UNTIL                                              a thread of the program
//   memory DEVICE BYTES                 what it has now that is not of cuMemCreate: contexts, code, small
//   allocations
#pragma once

#include <cstdint>
#include <string>

namespace simcuda::driver {

// What a kernel has done; its text is empty where nothing is logged.
struct KernelWork {
    std::string kernel;
    std::uint64_t at_ns = 0;  // it was submitted, by the machine's clock
    std::uint64_t operations = 0, bytes = 0, threads = 0;
};

bool logs_work();
std::uint64_t machine_ns();
void log_kernel(const KernelWork& work, std::uint64_t submitted_ns, std::uint64_t ended_ns);
// Writes what differs from the line before. One thread at a time.
void log_memory(int device, std::uint64_t bytes);
void log_wait(std::uint64_t from_ns, std::uint64_t until_ns);

}  // namespace simcuda::driver
