// Launches of before CUDA 4.0: a function is prepared call by call, then launched.
#include <cstring>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/launch.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

constexpr std::size_t kMostParameterBytes = 4096;

// `change` is given what was prepared for the function so far.
template <class Change>
CUresult prepare(Entry entry, CUfunction function, Change change) {
    return call(entry, [&](Context& context) {
        const auto launchable = find_launchable(function);
        launchable->bind(context);  // refuses one of another context
        std::lock_guard lock(launchable->prepared.mutex);
        change(launchable->prepared);
        return CUDA_SUCCESS;
    });
}

CUresult set_parameter(Entry entry, CUfunction function, int offset, const void* value, std::size_t bytes) {
    return prepare(entry, function, [&](PreparedLaunch& launch) {
        require(value != nullptr && offset >= 0 &&
                    static_cast<std::size_t>(offset) + bytes <= kMostParameterBytes,
                CUDA_ERROR_INVALID_VALUE);
        const std::size_t end = static_cast<std::size_t>(offset) + bytes;
        if (launch.parameters.size() < end) launch.parameters.resize(end);
        std::memcpy(launch.parameters.data() + offset, value, bytes);
    });
}

CUresult launch(Entry entry, CUfunction function, int width, int height, CUstream handle) {
    return call(entry, [&](Context& context) {
        require(width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
        const auto launchable = find_launchable(function);
        std::lock_guard lock(launchable->prepared.mutex);
        const PreparedLaunch& prepared = launchable->prepared;
        const LaunchShape shape{{static_cast<unsigned>(width), static_cast<unsigned>(height), 1},
                                {prepared.block[0], prepared.block[1], prepared.block[2]},
                                prepared.shared_bytes,
                                false};
        std::size_t bytes = prepared.parameters.size();
        void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(prepared.parameters.data()),
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
        submit(*launch_stream(context, handle, false), make_launch(context, function, shape, nullptr, extra));
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_API cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
    return prepare(Entry::cuFuncSetBlockShape, function, [&](PreparedLaunch& launch) {
        require(x > 0 && y > 0 && z > 0, CUDA_ERROR_INVALID_VALUE);
        launch.block[0] = static_cast<unsigned>(x);
        launch.block[1] = static_cast<unsigned>(y);
        launch.block[2] = static_cast<unsigned>(z);
    });
}

SIMCUDA_API cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
    return prepare(Entry::cuFuncSetSharedSize, function,
                   [&](PreparedLaunch& launch) { launch.shared_bytes = bytes; });
}

SIMCUDA_API cuParamSetSize(CUfunction function, unsigned bytes) {
    return prepare(Entry::cuParamSetSize, function, [&](PreparedLaunch& launch) {
        require(bytes <= kMostParameterBytes, CUDA_ERROR_INVALID_VALUE);
        launch.parameters.resize(bytes);
    });
}

SIMCUDA_API cuParamSeti(CUfunction function, int offset, unsigned value) {
    return set_parameter(Entry::cuParamSeti, function, offset, &value, sizeof value);
}

SIMCUDA_API cuParamSetf(CUfunction function, int offset, float value) {
    return set_parameter(Entry::cuParamSetf, function, offset, &value, sizeof value);
}

SIMCUDA_API cuParamSetv(CUfunction function, int offset, void* value, unsigned bytes) {
    return set_parameter(Entry::cuParamSetv, function, offset, value, bytes);
}

SIMCUDA_API cuLaunch(CUfunction function) {
    return launch(Entry::cuLaunch, function, 1, 1, nullptr);
}

SIMCUDA_API cuLaunchGrid(CUfunction function, int width, int height) {
    return launch(Entry::cuLaunchGrid, function, width, height, nullptr);
}

SIMCUDA_API cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
    return launch(Entry::cuLaunchGridAsync, function, width, height, stream);
}

}  // namespace simcuda::driver
