#include "tools/simcuda/driver/function_attributes.h"

#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/cluster.h"

namespace simcuda::driver {
namespace {

// Native code has no registers to count; this many let a block of any size run.
constexpr int kRegistersPerThread = 32;

int most_dynamic_shared(const Device& device, const ptx::Kernel& kernel) {
    return device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) -
           static_cast<int>(kernel.static_shared_bytes);
}

// A module's constants lie in one bank, which all its functions have.
int constant_bytes(const ptx::Program& program) {
    std::uint64_t bytes = 0;
    for (const ptx::Variable& variable : program.variables()) {
        if (variable.space != ptx::Variable::Space::Constant) continue;
        bytes = round_up(bytes, variable.alignment) + variable.bytes;
    }
    return static_cast<int>(bytes);
}

int cluster_axis(CUfunction_attribute attribute) {
    return attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH;
}

}  // namespace

unsigned architecture(const Device& device) {
    return static_cast<unsigned>(device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                                 device_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

bool overlaps_kernels(const Device& device) {
    return architecture(device) >= 90;
}

int function_attribute(const Device& device, const Function& function, const ptx::Program& program,
                       CUfunction_attribute attribute) {
    const ptx::Kernel& kernel = *function.kernel;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            return static_cast<int>(kernel.max_threads);
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            return static_cast<int>(kernel.static_shared_bytes);
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
            return static_cast<int>(kernel.local_bytes);
        case CU_FUNC_ATTRIBUTE_NUM_REGS:
            return kRegistersPerThread;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
            return static_cast<int>(architecture(device));
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            return std::min(function.max_dynamic_shared_bytes.load(), most_dynamic_shared(device, kernel));
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            return function.preferred_carveout;
        case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
            return constant_bytes(program);
        case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
            return 0;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
            return kernel.explicit_cluster;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
            return static_cast<int>(
                required_cluster(function)[static_cast<std::size_t>(cluster_axis(attribute))]);
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            return function.non_portable_cluster;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            return function.cluster_scheduling;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

void set_function_attribute(const Device& device, Function& function, CUfunction_attribute attribute,
                            int value) {
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            require(value >= 0 && value <= most_dynamic_shared(device, *function.kernel),
                    CUDA_ERROR_INVALID_VALUE);
            function.max_dynamic_shared_bytes = value;
            return;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            require(value >= -1 && value <= 100, CUDA_ERROR_INVALID_VALUE);
            function.preferred_carveout = value;
            return;
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
            require(function.kernel->cluster[0] == 0, CUDA_ERROR_NOT_PERMITTED);
            require(value >= 0, CUDA_ERROR_INVALID_VALUE);
            function.required_cluster[cluster_axis(attribute)] = value;
            return;
        case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            require(value == 0 || value == 1, CUDA_ERROR_INVALID_VALUE);
            function.non_portable_cluster = value;
            return;
        case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            require(value >= CU_CLUSTER_SCHEDULING_POLICY_DEFAULT &&
                        value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING,
                    CUDA_ERROR_INVALID_VALUE);
            function.cluster_scheduling = value;
            return;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
}

void parameter_info(const ptx::Kernel& kernel, std::size_t index, std::size_t* offset, std::size_t* bytes) {
    require(offset != nullptr && index < kernel.parameters.size(), CUDA_ERROR_INVALID_VALUE);
    *offset = kernel.parameters[index].offset;
    if (bytes) *bytes = kernel.parameters[index].bytes;
}

}  // namespace simcuda::driver
