// Modules and libraries: variables, functions, what they take and when it is given back.
#include <cstring>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr const char* kVariables = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 numbers[4] = {7, 8, 9};
.visible .const .align 4 .f32 factor = 0f40200000;
.visible .global .align 8 .u64 third = generic(numbers)+8;
.visible .global .align 8 .u64 itself = generic(itself);
.visible .global .align 1 .b8 large[1000000];
.visible .global .attribute(.managed) .align 4 .u32 shared_count = 5;

// *out = *third, and counts
.visible .entry follow(.param .u64 out)
{
    .reg .b64 %a<4>;
    .reg .b32 %r<3>;
    ld.param.u64 %a1, [out];
    ld.global.u64 %a2, [third];
    ld.global.u32 %r1, [%a2];
    st.global.u32 [%a1], %r1;
    ld.global.u32 %r2, [shared_count];
    add.u32 %r2, %r2, 1;
    st.global.u32 [shared_count], %r2;
    ret;
}

.visible .entry strange(.param .u64 out)
{
    .reg .b32 %r;
    unheard.of.u32 %r, 1;
    ret;
}

.visible .entry sized(.param .u8 a, .param .u64 b, .param .align 4 .b8 c[12], .param .u16 d)
{
    .shared .align 4 .b8 room[512];
    .reg .b32 %r;
    mov.u32 %r, room;
    st.shared.u32 [%r], %r;
    ret;
}
)";

CUmodule load(const char* text) {
    CUmodule module = nullptr;
    OK(cuModuleLoadData, &module, text);
    return module;
}

CUfunction function_of(CUmodule module, const char* name) {
    CUfunction function = nullptr;
    OK(cuModuleGetFunction, &function, module, name);
    return function;
}

template <class T>
T value_at(CUdeviceptr address) {
    T value{};
    OK(cuMemcpyDtoH, &value, address, sizeof(value));
    return value;
}

SIM_TEST("module: variables have their sizes, initial values and each other's addresses", {}) {
    const Gpu gpu;
    CUmodule module = load(kVariables);
    CUdeviceptr numbers = 0, third = 0, itself = 0, factor = 0, large = 0;
    std::size_t bytes = 0;
    OK(cuModuleGetGlobal, &numbers, &bytes, module, "numbers");
    EXPECT(bytes == 16);
    const auto words = read_back(numbers, 16);
    const std::uint32_t expected[4] = {7, 8, 9, 0};
    EXPECT(std::memcmp(words.data(), expected, 16) == 0);
    OK(cuModuleGetGlobal, &third, &bytes, module, "third");
    EXPECT(value_at<std::uint64_t>(third) == numbers + 8);
    OK(cuModuleGetGlobal, &itself, nullptr, module, "itself");
    EXPECT(value_at<std::uint64_t>(itself) == itself);
    OK(cuModuleGetGlobal, &factor, nullptr, module, "factor");
    EXPECT(value_at<float>(factor) == 2.5f);
    OK(cuModuleGetGlobal, &large, &bytes, module, "large");
    EXPECT(bytes == 1'000'000);
    EXPECT(read_back(large, bytes) == std::vector<std::uint8_t>(bytes, 0));
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal, &large, &bytes, module, "larger");
}

SIM_TEST("module: memory is taken at first use and given back at unload", {}) {
    const Gpu gpu;
    const std::size_t before = free_bytes();
    CUmodule module = load(kVariables);
    CUfunction function = function_of(module, "follow");
    EXPECT(free_bytes() == before);
    CUfunctionLoadingState state{};
    OK(cuFuncIsLoaded, &state, function);
    EXPECT(state == CU_FUNCTION_LOADING_STATE_UNLOADED);
    OK(cuFuncLoad, function);
    OK(cuFuncIsLoaded, &state, function);
    EXPECT(state == CU_FUNCTION_LOADING_STATE_LOADED);
    EXPECT(free_bytes() <= before - 1'000'000);
    CUdeviceptr address = 0;
    OK(cuModuleGetGlobal, &address, nullptr, module, "numbers");
    OK(cuModuleUnload, module);
    EXPECT(free_bytes() == before);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload, module);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuFuncLoad, function);
    std::uint32_t value = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &value, address, 4);
}

SIM_TEST("module: without room for it the use fails, and succeeds once there is",
         {{"SIMCUDA_MEMORY", "4M"}, {"SIMCUDA_CONTEXT_BYTES", "64K"}}) {
    const Gpu gpu;
    CUmodule module = load(kVariables);
    CUdeviceptr filler = 0, address = 0, out = 0;
    OK(cuMemAlloc, &out, 4);
    OK(cuMemAlloc, &filler, free_bytes() - 700'000);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuModuleGetGlobal, &address, nullptr, module, "numbers");
    EXPECT(launch(function_of(module, "follow"), 1, 1, nullptr, out) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree, filler);
    LAUNCH(function_of(module, "follow"), 1, 1, nullptr, out);
    EXPECT(value_at<std::uint32_t>(out) == 9);
}

SIM_TEST("module: an overhead that is a knob", {{"SIMCUDA_MODULE_BYTES", "3M"}, {"SIMCUDA_MEMORY", "4M"}}) {
    const Gpu gpu;
    CUmodule first = load(kKernels.c_str()), second = load(kKernels.c_str());
    OK(cuFuncLoad, function_of(first, "store"));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuFuncLoad, function_of(second, "store"));
    OK(cuModuleUnload, first);
    OK(cuFuncLoad, function_of(second, "store"));
}

SIM_TEST("module: functions are found, listed and described", {}) {
    const Gpu gpu;
    CUmodule module = load(kVariables), owner = nullptr;
    unsigned count = 0;
    OK(cuModuleGetFunctionCount, &count, module);
    EXPECT(count == 3);
    CUfunction all[4] = {};
    OK(cuModuleEnumerateFunctions, all, 4, module);
    EXPECT(all[0] != nullptr);
    EXPECT(all[3] == nullptr);
    CUfunction sized = function_of(module, "sized");
    const char* name = nullptr;
    OK(cuFuncGetName, &name, sized);
    EXPECT(std::string(name) == "sized");
    OK(cuFuncGetModule, &owner, sized);
    EXPECT(owner == module);
    CUfunction none = nullptr;
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &none, module, "numbers");

    const std::size_t layout[4][2] = {{0, 1}, {8, 8}, {16, 12}, {28, 2}};
    for (std::size_t i = 0; i < 4; ++i) {
        std::size_t offset = 99, bytes = 99;
        OK(cuFuncGetParamInfo, sized, i, &offset, &bytes);
        EXPECT(offset == layout[i][0]);
        EXPECT(bytes == layout[i][1]);
        OK(cuFuncGetParamInfo, sized, i, &offset, nullptr);
    }
    std::size_t offset = 0, bytes = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo, sized, 4, &offset, &bytes);

    int value = 0;
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, sized);
    EXPECT(value == 512);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, sized);
    EXPECT(value == 1024);
    OK(cuFuncSetAttribute, sized, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60'000);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, sized);
    EXPECT(value == 60'000);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute, sized,
          CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 10'000'000);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncSetAttribute, sized, CU_FUNC_ATTRIBUTE_NUM_REGS, 8);
}

SIM_TEST("module: JIT errors are written where the caller asked for them", {}) {
    const Gpu gpu;
    char log[256] = "untouched";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    CUmodule module = nullptr;
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx, &module, ".version 8.0\n.target sm_75\nwhat is this\n",
          2, options, values);
    EXPECT(std::strlen(log) > 0);
    EXPECT(std::string(log) != "untouched");
    EXPECT(reinterpret_cast<std::size_t>(values[1]) == std::strlen(log));
    values[1] = reinterpret_cast<void*>(sizeof(log));
    OK(cuModuleLoadDataEx, &module, kKernels.c_str(), 2, options, values);
    EXPECT(values[1] == nullptr);
}

SIM_TEST("library: kernels serve every context, each with variables of its own", {}) {
    const Gpu gpu;
    CUlibrary library = nullptr;
    OK(cuLibraryLoadData, &library, kVariables, nullptr, nullptr, 0, nullptr, nullptr, 0);
    CUkernel kernel = nullptr;
    OK(cuLibraryGetKernel, &kernel, library, "follow");
    FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel, &kernel, library, "unfollow");
    const char* name = nullptr;
    OK(cuKernelGetName, &name, kernel);
    EXPECT(std::string(name) == "follow");
    CUlibrary owner = nullptr;
    OK(cuKernelGetLibrary, &owner, kernel);
    EXPECT(owner == library);
    unsigned count = 0;
    OK(cuLibraryGetKernelCount, &count, library);
    EXPECT(count == 3);

    CUdeviceptr first = 0, second = 0, managed = 0, out = 0;
    OK(cuMemAlloc, &out, 4);
    OK(cuLibraryGetGlobal, &first, nullptr, library, "numbers");
    OK(cuLibraryGetManaged, &managed, nullptr, library, "shared_count");
    LAUNCH(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr, out);
    EXPECT(value_at<std::uint32_t>(out) == 9);
    EXPECT(*reinterpret_cast<volatile std::uint32_t*>(managed) == 6);

    CUcontext context = nullptr;
    OK(cuCtxCreate, &context, nullptr, 0, gpu.device);
    OK(cuLibraryGetGlobal, &second, nullptr, library, "numbers");
    EXPECT(second != first);
    OK(cuMemsetD32, second, 1, 4);
    CUdeviceptr elsewhere = 0;
    OK(cuMemAlloc, &elsewhere, 4);
    CUfunction bound = nullptr;
    OK(cuKernelGetFunction, &bound, kernel);
    LAUNCH(bound, 1, 1, nullptr, elsewhere);
    EXPECT(value_at<std::uint32_t>(elsewhere) == 1);
    EXPECT(*reinterpret_cast<volatile std::uint32_t*>(managed) == 7);
    OK(cuCtxDestroy, context);
    OK(cuCtxSetCurrent, gpu.context);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuFuncLoad, bound);

    LAUNCH(reinterpret_cast<CUfunction>(kernel), 1, 1, nullptr, out);
    EXPECT(value_at<std::uint32_t>(out) == 9);
    const std::size_t held = free_bytes();
    OK(cuLibraryUnload, library);
    EXPECT(free_bytes() >= held + 1'000'000);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction, &bound, kernel);
}

SIM_TEST("library: attributes of a kernel hold in contexts made before and after",
         {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    CUlibrary library = nullptr;
    OK(cuLibraryLoadData, &library, kVariables, nullptr, nullptr, 0, nullptr, nullptr, 0);
    CUkernel kernel = nullptr;
    OK(cuLibraryGetKernel, &kernel, library, "sized");
    constexpr auto kAttribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    CUfunction before = nullptr, after = nullptr;
    OK(cuKernelGetFunction, &before, kernel);
    OK(cuKernelSetAttribute, kAttribute, 50'000, kernel, 0);
    int value = 0;
    OK(cuFuncGetAttribute, &value, kAttribute, before);
    EXPECT(value == 50'000);
    OK(cuKernelGetAttribute, &value, kAttribute, kernel, 1);
    EXPECT(value != 50'000);
    CUcontext context = nullptr;
    OK(cuCtxCreate, &context, nullptr, 0, 0);
    OK(cuKernelGetFunction, &after, kernel);
    OK(cuFuncGetAttribute, &value, kAttribute, after);
    EXPECT(value == 50'000);
}

TEST_CASE("module: an instruction that is not simulated fails its kernel alone, and is named once") {
    std::string said;
    const std::string failures = run(
        {},
        [] {
            const Gpu gpu;
            CUmodule module = load(kVariables);
            CUdeviceptr out = 0;
            OK(cuMemAlloc, &out, 4);
            for (int i = 0; i < 3; ++i) {
                EXPECT(launch(function_of(module, "strange"), 1, 1, nullptr, out) ==
                       CUDA_ERROR_NOT_SUPPORTED);
            }
            LAUNCH(function_of(module, "follow"), 1, 1, nullptr, out);
            EXPECT(value_at<std::uint32_t>(out) == 9);
        },
        &said);
    CHECK(failures == "");
    const auto first = said.find("unheard.of");
    CHECK(first != std::string::npos);
    CHECK(said.find("unheard.of", first + 1) == std::string::npos);
    CHECK(said.find("strange") != std::string::npos);
}

}  // namespace
