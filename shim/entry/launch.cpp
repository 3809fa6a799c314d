// Kernel launches.
#include <algorithm>
#include <span>
#include <vector>

#include "shim/access/arguments.h"
#include "shim/access/layouts.h"
#include "shim/access/pointer_tables.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/session/submit.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
#include "shim/util/settings.h"

namespace lms::entry {
namespace {

using session::WorkingSet;

struct Launch {
    CUfunction function;
    CUstream stream;  // as the program gave it, and then resolved
    void** parameters;
    void** extra;
    code::LaunchShape shape;
    const CUlaunchConfig* config = nullptr;  // of the forms that have one
};

// Gives it to the driver, with that configuration if it has one.
using LaunchCall = util::FunctionRef<CUresult(const CUlaunchConfig*)>;

WorkingSet look_at(session::Scratch& scratch, const Launch& launch) {
    WorkingSet reach(&scratch);
    reach.stream = launch.stream;
    reach.code = launch.function;
    if (trace::writer() || settings().check) {
        reach.label = access::layout_of(launch.function)->name;
        if (reach.label.empty()) reach.label = "kernel";
    }
    access::add_launch(reach, launch.function, launch.parameters, launch.extra, launch.shape);
    access::follow_tables(reach);
    return reach;
}

// Without leave to begin before the kernel before has ended (programmatic dependent launch): what such a
// kernel makes of the waits and fences that come between the two is not known, and to give none is always
// right.
CUresult call_in_order(const Launch& launch, LaunchCall call) {
    const auto gives_leave = [](const CUlaunchAttribute& attribute) {
        return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    };
    if (!launch.config || !launch.config->attrs) return call(launch.config);
    const std::span given(launch.config->attrs, launch.config->numAttrs);
    if (std::ranges::none_of(given, gives_leave) || program::capturing(launch.stream))
        return call(launch.config);
    std::vector<CUlaunchAttribute> attributes(given.begin(), given.end());
    std::erase_if(attributes, gives_leave);
    CUlaunchConfig in_order = *launch.config;
    in_order.attrs = attributes.data();
    in_order.numAttrs = static_cast<unsigned>(attributes.size());
    return call(&in_order);
}

[[gnu::noinline, gnu::cold]] CUresult launch_after_look(const Launch& launch, LaunchCall call) {
    return guarded([&] {
        session::Scratch scratch;
        return session::submit_after_look(
            launch.stream, [&] { return look_at(scratch, launch); },
            [&] { return call_in_order(launch, call); });
    });
}

// Who launches a kernel does not show in the graph that it is captured into.
[[gnu::noinline, gnu::cold]] void look_who_captures(CUfunction function) {
    guarded([&] {
        access::layout_of(function)->exempt->is_one();
        return CUDA_SUCCESS;
    });
}

// Makes a launch by `call`. While everything fits that costs a few dozen instructions (tests/bench.sh counts
// them), which is why the rest is a function of its own, which gets copies.
template <typename Form, typename Call>
[[gnu::always_inline]] inline CUresult launch(const Launch& what, Call call) {
    trace::add(trace::counters().launches);
    if (program::capturing_anywhere()) [[unlikely]]
        look_who_captures(what.function);
    CUresult status = CUDA_SUCCESS;
    // Of the stream nothing but whether it is the per-thread one is asked.
    const CUstream asked = Form::kPerThread ? Form::stream(what.stream) : what.stream;
    if (session::try_fast_path(
            asked, [&] { return call(what.config); }, status)) [[likely]]
        return status;
    const Call moved = call;
    return launch_after_look(
        {what.function, Form::stream(what.stream), what.parameters, what.extra, what.shape, what.config},
        moved);
}

CUstream stream_of(const CUlaunchConfig* config) {
    return config ? config->hStream : nullptr;
}

code::LaunchShape shape_of(const CUlaunchConfig* config) {
    if (!config) return {};
    return {{config->gridDimX, config->gridDimY, config->gridDimZ},
            {config->blockDimX, config->blockDimY, config->blockDimZ}};
}

}  // namespace
}  // namespace lms::entry

using namespace lms::entry;

LMS_FORMS(cuLaunchKernel, _ptsz,
          (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
           unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
           unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra),
          return launch<Form>({f,
                               hStream,
                               kernelParams,
                               extra,
                               {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}}},
                              [=](const CUlaunchConfig*) {
                                  return Form::real(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                                    blockDimZ, sharedMemBytes, hStream, kernelParams, extra);
                              });)

LMS_FORMS(cuLaunchCooperativeKernel, _ptsz,
          (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
           unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
           unsigned int sharedMemBytes, CUstream hStream, void** kernelParams),
          return launch<Form>({f,
                               hStream,
                               kernelParams,
                               nullptr,
                               {{gridDimX, gridDimY, gridDimZ}, {blockDimX, blockDimY, blockDimZ}}},
                              [=](const CUlaunchConfig*) {
                                  return Form::real(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                                    blockDimZ, sharedMemBytes, hStream, kernelParams);
                              });)

LMS_FORMS(cuLaunchKernelEx, _ptsz,
          (const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra),
          return launch<Form>({f, stream_of(config), kernelParams, extra, shape_of(config), config},
                              [=](const CUlaunchConfig* in_order) {
                                  return Form::real(in_order, f, kernelParams, extra);
                              });)
