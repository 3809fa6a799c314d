// What a program asks of a GPU, from a trace or a recorded step, and how long its kernels take on any GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/lms/gpus.h"
#include "tools/lms/replay_script.h"
#include "tools/lms/trace_file.h"

namespace lms::tool {

// Of the launches of one GPU in the trace, in their order.
class KernelTimes {
  public:
    virtual ~KernelTimes() = default;
    // Of a kernel, in nanoseconds; less than 0: not known, as the trace has it.
    virtual double kernel_ns(std::size_t launch, const TargetGpu& gpu) const = 0;
    // Where they come from, for who reads a plan.
    virtual std::string source() const = 0;
};

// What the program does from one launch to the next, where its own clock does not count: ReplayScript::Step.
struct HostPace {
    std::uint64_t took_ns = 0;
    bool waits = false;
    std::uint64_t after_ns = 0;
    std::uint32_t over = 0;
};

struct Workload {
    std::unique_ptr<Trace> trace = std::make_unique<Trace>();
    int device = 0;
    std::unique_ptr<const KernelTimes> times;
    std::vector<HostPace> pace = {};          // by launch; empty: as the trace has it
    std::uint64_t unmanaged_bytes = 0;        // of the GPU, beside its reserve
    bool has_context = false;                 // a real one's is among these
    double remap_seconds = 0;                 // of the thread that moves a chunk, each time it is remapped
    double launch_seconds = 0;                // of the thread that launches, where not all fits
    std::vector<std::size_t> step_ends = {};  // launches with which a step of the program ends; or empty
};

// Every time a kernel takes so long.
std::unique_ptr<const KernelTimes> given_times(double milliseconds);
// By the samples in the trace, of the GPU that it is of.
std::unique_ptr<const KernelTimes> measured_times(const Trace& trace, int device);

// What the shim keeps free of a GPU of that size (LMS_RESERVE).
std::uint64_t default_reserve(std::uint64_t total_bytes);

// The launches of the GPU with which a step of the program ends, where it repeats itself; else none.
std::vector<std::size_t> steps_of(const Trace& trace, int device, const KernelTimes& times);

// What the trace tells; `problem` is one line where it tells of no GPU's memory or work.
Workload workload_of(std::unique_ptr<Trace> trace, std::string& problem);

}  // namespace lms::tool
