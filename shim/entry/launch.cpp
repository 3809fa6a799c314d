// Kernel launches.
#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "shim/device/driver_table.h"
#include "shim/entry/guard.h"
#include "shim/reach/arguments.h"
#include "shim/reach/code_registry.h"
#include "shim/reach/exempt.h"
#include "shim/reach/pointer_tables.h"
#include "shim/reach/used_addresses.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
#include "shim/util/settings.h"

namespace lms::entry {
namespace {

using device::driver;
using engine::WorkingSet;

WorkingSet look_at(engine::Scratch& scratch, CUfunction function, CUstream stream, void** parameters,
                   void** extra) {
    WorkingSet reach(&scratch);
    reach.stream = stream;
    reach.code = function;
    if (trace::writer() || settings().check) {
        reach.label = engine::name_of(function);
        if (reach.label.empty()) reach.label = "kernel";
    }
    engine::add_arguments(reach, function, parameters, extra);
    engine::follow_used(reach);
    engine::follow_tables(reach);
    reach.opaque |= engine::called_by_exempt();
    return reach;
}

template <typename... Arguments>
CUresult call_in_order(CUstream, CUresult (*real)(Arguments...),
                       std::type_identity_t<Arguments>... arguments) {
    return real(arguments...);
}

// Without leave to begin before the kernel before has ended (programmatic dependent launch): what such a
// kernel makes of the waits and fences that come between the two is not known, and to give none is always
// right.
using LaunchEx = CUresult (*)(const CUlaunchConfig*, CUfunction, void**, void**);
CUresult call_in_order(CUstream stream, LaunchEx real, const CUlaunchConfig* config, CUfunction function,
                       void** parameters, void** extra) {
    const auto gives_leave = [](const CUlaunchAttribute& attribute) {
        return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    };
    if (!config || !config->attrs) return real(config, function, parameters, extra);
    const std::span given(config->attrs, config->numAttrs);
    if (std::ranges::none_of(given, gives_leave) || engine::capturing(stream))
        return real(config, function, parameters, extra);
    std::vector<CUlaunchAttribute> attributes(given.begin(), given.end());
    std::erase_if(attributes, gives_leave);
    CUlaunchConfig in_order = *config;
    in_order.attrs = attributes.data();
    in_order.numAttrs = static_cast<unsigned>(attributes.size());
    return real(&in_order, function, parameters, extra);
}

template <typename... Arguments>
[[gnu::noinline]] CUresult launch_after_look(CUresult (*real)(Arguments...), CUfunction function,
                                             CUstream stream, void** parameters, void** extra,
                                             Arguments... arguments) {
    return guarded([&] {
        engine::Scratch scratch;
        return engine::submit_after_look(
            stream, [&] { return look_at(scratch, function, stream, parameters, extra); },
            [&] { return call_in_order(stream, real, arguments...); });
    });
}

// Calls `real(arguments...)`, which launches `function`. While everything fits a launch costs a few dozen
// instructions (tests/bench.sh counts them), which is why the rest is a function of its own.
template <typename... Arguments>
[[gnu::always_inline]] inline CUresult launch(CUresult (*real)(Arguments...), CUfunction function,
                                              CUstream stream, bool per_thread, void** parameters,
                                              void** extra, std::type_identity_t<Arguments>... arguments) {
    trace::add(trace::counters().launches);
    CUresult status = CUDA_SUCCESS;
    // Of the stream nothing but whether it is the per-thread one is asked.
    const CUstream asked = per_thread ? engine::resolve_stream(stream, true) : stream;
    if (engine::try_fast_path(
            asked, [&] { return real(arguments...); }, status)) [[likely]]
        return status;
    return launch_after_look(real, function, engine::resolve_stream(stream, per_thread), parameters, extra,
                             arguments...);
}

CUstream stream_of(const CUlaunchConfig* config) {
    return config ? config->hStream : nullptr;
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
    return entry::launch(driver().cuLaunchKernel, f, hStream, false, kernelParams, extra, f, gridDimX,
                         gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                         kernelParams, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void** kernelParams, void** extra) {
    return entry::launch(driver().cuLaunchKernel_ptsz, f, hStream, true, kernelParams, extra, f, gridDimX,
                         gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream,
                         kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
    return entry::launch(driver().cuLaunchKernelEx, f, entry::stream_of(config), false, kernelParams, extra,
                         config, f, kernelParams, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                               void** extra) {
    return entry::launch(driver().cuLaunchKernelEx_ptsz, f, entry::stream_of(config), true, kernelParams,
                         extra, config, f, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
    return entry::launch(driver().cuLaunchCooperativeKernel, f, hStream, false, kernelParams, nullptr, f,
                         gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
                         hStream, kernelParams);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                        void** kernelParams) {
    return entry::launch(driver().cuLaunchCooperativeKernel_ptsz, f, hStream, true, kernelParams, nullptr, f,
                         gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
                         hStream, kernelParams);
}
