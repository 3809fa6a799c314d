// Kernel launches.
#include "shim/device/driver_table.h"
#include "shim/engine/arguments.h"
#include "shim/engine/layouts.h"
#include "shim/engine/tables.h"
#include "shim/entry/guard.h"
#include "shim/trace/stats.h"
#include "shim/trace/writer.h"

namespace lms::entry {
namespace {

using device::driver;
using engine::Reach;

Reach look_at(CUfunction function, CUstream stream, void** parameters, void** extra) {
    Reach reach;
    reach.stream = stream;
    if (trace::writer()) {
        reach.label = engine::name_of(function);
        if (reach.label.empty()) reach.label = "kernel";
    }
    engine::add_arguments(reach, function, parameters, extra);
    engine::follow_tables(reach);
    return reach;
}

template <typename Call>
CUresult launch(CUfunction function, CUstream stream, bool per_thread, void** parameters, void** extra,
                Call&& call) {
    return guarded([&] {
        trace::add(trace::counters().launches);
        const CUstream where = engine::spelt_out(stream, per_thread);
        return engine::submit(
            where, [&] { return look_at(function, where, parameters, extra); }, call);
    });
}

CUresult launch_ex(decltype(device::Driver::cuLaunchKernelEx) real, const CUlaunchConfig* config,
                   CUfunction f, void** parameters, void** extra, bool per_thread) {
    return launch(f, config ? config->hStream : nullptr, per_thread, parameters, extra,
                  [&] { return real(config, f, parameters, extra); });
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                        unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                        unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra) {
    return entry::launch(f, hStream, false, kernelParams, extra, [&] {
        return driver().cuLaunchKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                                       sharedMemBytes, hStream, kernelParams, extra);
    });
}

CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                             unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                             unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                             void** kernelParams, void** extra) {
    return entry::launch(f, hStream, true, kernelParams, extra, [&] {
        return driver().cuLaunchKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ,
                                            sharedMemBytes, hStream, kernelParams, extra);
    });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra) {
    return entry::launch_ex(driver().cuLaunchKernelEx, config, f, kernelParams, extra, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                               void** extra) {
    return entry::launch_ex(driver().cuLaunchKernelEx_ptsz, config, f, kernelParams, extra, true);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                   unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
    return entry::launch(f, hStream, false, kernelParams, nullptr, [&] {
        return driver().cuLaunchCooperativeKernel(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                                  blockDimZ, sharedMemBytes, hStream, kernelParams);
    });
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                        void** kernelParams) {
    return entry::launch(f, hStream, true, kernelParams, nullptr, [&] {
        return driver().cuLaunchCooperativeKernel_ptsz(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY,
                                                       blockDimZ, sharedMemBytes, hStream, kernelParams);
    });
}
