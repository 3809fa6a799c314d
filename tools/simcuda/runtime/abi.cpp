// The functions that nvcc's generated host code calls. No header that a library may include declares them for
// C++ code; their types are those of crt/host_runtime.h and crt/device_functions.h.
#include <vector>

#include "tools/simcuda/runtime/call.h"
#include "tools/simcuda/runtime/launch.h"
#include "tools/simcuda/runtime/registry.h"

using namespace simcuda::runtime;

namespace {

struct CallConfiguration {
    dim3 grid;
    dim3 block;
    std::size_t shared_bytes;
    cudaStream_t stream;
};
// What `<<<...>>>` pushed; the launch stub it calls pops it. Arguments of that call may launch kernels too.
thread_local std::vector<CallConfiguration> t_configurations;

Binary* binary_of(void** handle) {
    return reinterpret_cast<Binary*>(handle);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
    return reinterpret_cast<void**>(Registry::instance().add_binary(wrapper));
}

void __cudaRegisterFatBinaryEnd(void**) {}  // nothing is loaded before its first use

void __cudaUnregisterFatBinary(void** handle) {
    Registry::instance().remove_binary(binary_of(handle));
}

void __cudaRegisterFunction(void** handle, const char* stand_in, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
    Registry::instance().add_kernel(binary_of(handle), stand_in, name);
}

void __cudaRegisterVar(void** handle, char* stand_in, char*, const char* name, int, std::size_t, int, int) {
    Registry::instance().add_variable(binary_of(handle), stand_in, name);
}

void __cudaRegisterManagedVar(void** handle, void** pointer, char*, const char* name, int, std::size_t, int,
                              int) {
    Registry::instance().add_managed(binary_of(handle), pointer, name);
}

char __cudaInitModule(void** handle) {
    cudaError_t error = run([&](const Driver& cu) {
        Registry::instance().initialise_managed(cu, binary_of(handle));
        return cudaSuccess;
    });
    return error == cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream) {
    t_configurations.push_back({grid, block, shared_bytes, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
    if (t_configurations.empty()) return record(cudaErrorMissingConfiguration);
    const CallConfiguration& top = t_configurations.back();
    *grid = top.grid;
    *block = top.block;
    *shared_bytes = top.shared_bytes;
    *static_cast<cudaStream_t*>(stream) = top.stream;
    t_configurations.pop_back();
    return cudaSuccess;
}

// A launch stub asks once and keeps the answer for good. Where the kernel cannot be had now, it is given its
// own address back, so that each launch asks again and answers the error.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
    *kernel = static_cast<cudaKernel_t>(const_cast<void*>(entry));
    return run<Need::Driver>([&](const Driver& cu) {
        *kernel = Registry::instance().kernel(cu, entry);
        return cudaSuccess;
    });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
    return launch<Form::Legacy>(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                    std::size_t shared_bytes, cudaStream_t stream) {
    return launch<Form::PerThread>(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // extern "C"
#pragma GCC visibility pop
