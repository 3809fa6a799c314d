// What can be asked of and set for a kernel, and how many of its blocks fit.
#include "tools/simcuda/runtime/call.h"
#include "tools/simcuda/runtime/registry.h"

using namespace simcuda::runtime;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* entry) {
    return run([&](const Driver& cu) -> Status {
        require(attributes != nullptr, cudaErrorInvalidValue);
        CUfunction function = Registry::instance().function(cu, entry);
        auto get = [&](CUfunction_attribute which) {
            int value = 0;
            require(cu.cuFuncGetAttribute(&value, which, function));
            return value;
        };
        cudaFuncAttributes out{};
        out.sharedSizeBytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
        out.constSizeBytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
        out.localSizeBytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
        out.maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
        out.numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
        out.ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
        out.binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
        out.cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
        out.maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
        out.preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
        out.clusterDimMustBeSet = get(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
        out.requiredClusterWidth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
        out.requiredClusterHeight = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
        out.requiredClusterDepth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
        out.clusterSchedulingPolicyPreference = get(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
        out.nonPortableClusterSizeAllowed = get(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
        *attributes = out;
        return cudaSuccess;
    });
}

cudaError_t cudaFuncSetAttribute(const void* entry, cudaFuncAttribute attribute, int value) {
    return run([&](const Driver& cu) {
        return cu.cuFuncSetAttribute(Registry::instance().function(cu, entry),
                                     static_cast<CUfunction_attribute>(attribute), value);
    });
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value,
                                            int device) {
    return run<Need::Driver>([&](const Driver& cu) {
        return cu.cuKernelSetAttribute(static_cast<CUfunction_attribute>(attribute), value,
                                       Registry::instance().kernel(cu, kernel), device);
    });
}

cudaError_t cudaFuncSetCacheConfig(const void* entry, cudaFuncCache config) {
    return run([&](const Driver& cu) {
        return cu.cuFuncSetCacheConfig(Registry::instance().function(cu, entry),
                                       static_cast<CUfunc_cache>(config));
    });
}

// There are no banks to size: the kernel is checked and that is all, as on every device since Volta.
cudaError_t cudaFuncSetSharedMemConfig(const void* entry, cudaSharedMemConfig config) {
    return run([&](const Driver& cu) {
        require(config >= cudaSharedMemBankSizeDefault && config <= cudaSharedMemBankSizeEightByte,
                cudaErrorInvalidValue);
        Registry::instance().kernel(cu, entry);
        return cudaSuccess;
    });
}

cudaError_t cudaFuncGetName(const char** name, const void* entry) {
    return run([&](const Driver& cu) {
        require(name != nullptr, cudaErrorInvalidValue);
        return cu.cuKernelGetName(name, Registry::instance().kernel(cu, entry));
    });
}

cudaError_t cudaFuncGetParamInfo(const void* entry, std::size_t index, std::size_t* offset,
                                 std::size_t* bytes) {
    return run([&](const Driver& cu) {
        return cu.cuKernelGetParamInfo(Registry::instance().kernel(cu, entry), index, offset, bytes);
    });
}

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
    return run<Need::Driver>([&](const Driver& cu) {
        require(kernel != nullptr, cudaErrorInvalidValue);
        *kernel = Registry::instance().kernel(cu, entry);
        return cudaSuccess;
    });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* entry) {
    return run([&](const Driver& cu) {
        require(function != nullptr, cudaErrorInvalidValue);
        *function = Registry::instance().function(cu, entry);
        return cudaSuccess;
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* entry,
                                                                   int block_size, std::size_t shared_bytes,
                                                                   unsigned int flags) {
    return run([&](const Driver& cu) {
        return cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            blocks, Registry::instance().function(cu, entry), block_size, shared_bytes, flags);
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* entry, int block_size,
                                                          std::size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, entry, block_size, shared_bytes,
                                                                  cudaOccupancyDefault);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes, const void* entry, int blocks,
                                                      int block_size) {
    return run([&](const Driver& cu) {
        return cu.cuOccupancyAvailableDynamicSMemPerBlock(bytes, Registry::instance().function(cu, entry),
                                                          blocks, block_size);
    });
}
