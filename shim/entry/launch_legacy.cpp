// Launches of CUDA's first years, whose parameters were set beforehand, and launches on several devices at
// once.
#include <deque>
#include <vector>

#include "shim/access/arguments.h"
#include "shim/access/legacy_parameters.h"
#include "shim/access/pointer_tables.h"
#include "shim/access/used_addresses.h"
#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/trace/live_page.h"

namespace lms::entry {
namespace {

using device::driver;
using session::WorkingSet;

template <typename Call>
CUresult launch(CUfunction function, CUstream stream, Call&& call) {
    return guarded([&] {
        trace::add(trace::counters().launches);
        const CUstream where = session::resolve_stream(stream, false);
        return session::submit(
            where,
            [&] {
                WorkingSet reach;
                reach.stream = where;
                reach.code = function;
                access::add_parameters(reach, function);
                access::follow_used(reach);
                access::follow_tables(reach);
                return reach;
            },
            call);
    });
}

template <typename Call>
CUresult set(CUfunction function, int offset, const void* data, std::size_t bytes, Call&& call) {
    return guarded([&] {
        const CUresult status = session::call_with_oom_retry(call);
        if (status == CUDA_SUCCESS && data && offset >= 0)
            access::set_parameters(function, static_cast<std::size_t>(offset), data, bytes);
        return status;
    });
}

// Each launch's buffers are held in their own stream; the driver takes all of them in one call.
CUresult launch_together(std::span<CUDA_LAUNCH_PARAMS> launches, unsigned flags) {
    std::deque<WorkingSet> reaches;
    std::deque<session::ResidencyGuard> guards;
    std::vector<session::ResidencyGuard*> held;
    for (const CUDA_LAUNCH_PARAMS& each : launches) {
        trace::add(trace::counters().launches);
        WorkingSet& reach = reaches.emplace_back();
        reach.stream = session::resolve_stream(each.hStream, false);
        reach.code = each.function;
        const code::LaunchShape shape{{each.gridDimX, each.gridDimY, each.gridDimZ},
                                      {each.blockDimX, each.blockDimY, each.blockDimZ}};
        access::add_arguments(reach, each.function, each.kernelParams, nullptr, &shape);
        access::follow_used(reach);
        access::follow_tables(reach);
        held.push_back(&guards.emplace_back(reach));
        if (held.back()->status() != CUDA_SUCCESS) return held.back()->status();
    }
    return session::call_with_oom_retry(
        [&] {
            return driver().cuLaunchCooperativeKernelMultiDevice(
                launches.data(), static_cast<unsigned>(launches.size()), flags);
        },
        held);
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;
using lms::device::driver;

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
    return set(hfunc, offset, &value, sizeof value,
               [&] { return driver().cuParamSeti(hfunc, offset, value); });
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
    return set(hfunc, offset, &value, sizeof value,
               [&] { return driver().cuParamSetf(hfunc, offset, value); });
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
    return set(hfunc, offset, ptr, numbytes,
               [&] { return driver().cuParamSetv(hfunc, offset, ptr, numbytes); });
}

CUresult cuLaunch(CUfunction f) {
    return launch(f, nullptr, [&] { return driver().cuLaunch(f); });
}

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
    return launch(f, nullptr, [&] { return driver().cuLaunchGrid(f, grid_width, grid_height); });
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
    return launch(f, hStream,
                  [&] { return driver().cuLaunchGridAsync(f, grid_width, grid_height, hStream); });
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList, unsigned int numDevices,
                                              unsigned int flags) {
    return guarded([&]() -> CUresult {
        if (!launchParamsList || lms::session::sessions().empty()) {
            return driver().cuLaunchCooperativeKernelMultiDevice(launchParamsList, numDevices, flags);
        }
        return launch_together({launchParamsList, numDevices}, flags);
    });
}
