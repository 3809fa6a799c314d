// Linking: several PTX modules become one program.
#include <cstring>
#include <string>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

constexpr const char* kHead = ".version 8.0\n.target sm_75\n.address_size 64\n";

// *out = helper() + elsewhere + its own local
const std::string kCaller = std::string(kHead) + R"(
.extern .func (.param .b32 result) helper ();
.extern .global .align 4 .u32 elsewhere;
.global .align 4 .u32 local = 1; // a { brace in a comment
.weak .global .align 4 .u32 either = 100;

.visible .entry which(.param .u64 out)
{
    .reg .b64 %a;
    .reg .b32 %r<6>;
    ld.param.u64 %a, [out];
    {
        .param .b32 result;
        call.uni (result), helper, ();
        ld.param.b32 %r1, [result];
    }
    ld.global.u32 %r2, [elsewhere];
    ld.global.u32 %r3, [local];
    ld.global.u32 %r4, [either];
    add.u32 %r1, %r1, %r2;
    add.u32 %r1, %r1, %r3;
    add.u32 %r1, %r1, %r4;
    st.global.u32 [%a], %r1;
    ret;
}
)";

const std::string kCallee = std::string(kHead) + R"(
.visible .global .align 4 .u32 elsewhere = 20;
.global .align 4 .u32 local = 3;
.weak .global .align 4 .u32 either = 200;

.visible .func (.param .b32 result) helper ()
{
    .reg .b32 %r;
    ld.global.u32 %r, [local];
    st.param.b32 [result], %r;
    ret;
}
)";

unsigned value_of(CUmodule module) {
    CUfunction function = nullptr;
    CUdeviceptr out = 0;
    OK(cuModuleGetFunction, &function, module, "which");
    OK(cuMemAlloc, &out, 4);
    LAUNCH(function, 1, 1, nullptr, out);
    unsigned value = 0;
    OK(cuMemcpyDtoH, &value, out, 4);
    return value;
}

void add(CUlinkState state, const std::string& text) {
    OK(cuLinkAddData, state, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()), text.size() + 1, "part", 0,
       nullptr, nullptr);
}

SIM_TEST("link: externs meet their definitions, locals stay apart, the first weak one is kept", {}) {
    const Gpu gpu;
    for (bool caller_first : {true, false}) {
        CUlinkState state = nullptr;
        OK(cuLinkCreate, 0, nullptr, nullptr, &state);
        add(state, caller_first ? kCaller : kCallee);
        add(state, caller_first ? kCallee : kCaller);
        void* image = nullptr;
        std::size_t bytes = 0;
        OK(cuLinkComplete, state, &image, &bytes);
        CUmodule module = nullptr;
        OK(cuModuleLoadData, &module, image);
        OK(cuLinkDestroy, state);
        EXPECT(value_of(module) == 3 + 20 + 1 + (caller_first ? 100u : 200u));
    }
}

SIM_TEST("link: two definitions of one name are refused", {}) {
    const Gpu gpu;
    CUlinkState state = nullptr;
    OK(cuLinkCreate, 0, nullptr, nullptr, &state);
    add(state, kCallee);
    add(state, kCallee);
    void* image = nullptr;
    FAILS(CUDA_ERROR_INVALID_SOURCE, cuLinkComplete, state, &image, nullptr);
    OK(cuLinkDestroy, state);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy, state);
}

// Languages that collect garbage free the options in any order.
SIM_TEST("link: errors are written by the call that finds them, and nothing after it", {}) {
    const Gpu gpu;
    char log[256] = "untouched";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    CUlinkState state = nullptr;
    OK(cuLinkCreate, 2, options, values, &state);
    add(state, std::string(kHead) + "what is this\n");
    void* image = nullptr;
    FAILS(CUDA_ERROR_INVALID_PTX, cuLinkComplete, state, &image, nullptr);
    EXPECT(std::string(log) != "untouched");
    EXPECT(std::strlen(log) > 0);
    EXPECT(reinterpret_cast<std::size_t>(values[1]) == std::strlen(log));
    values[1] = log;
    std::strcpy(log, "mine again");
    OK(cuLinkDestroy, state);
    EXPECT(values[1] == log);
    EXPECT(std::string(log) == "mine again");
}

SIM_TEST("link: a wrapper that names several fat binaries is linked", {}) {
    const Gpu gpu;
    // As nvcc -rdc=true leaves it; relocatable text may be raw in it.
    auto fat = [](const std::string& text) {
        std::string bytes(16 + 64, '\0');
        const std::uint32_t magic = 0xBA55ED50, header = 64, arch = 75;
        const std::uint16_t version = 1, header_bytes = 16, kind = 1;
        const std::uint64_t payload = text.size() + 1, all = 64 + payload;
        std::memcpy(&bytes[0], &magic, 4);
        std::memcpy(&bytes[4], &version, 2);
        std::memcpy(&bytes[6], &header_bytes, 2);
        std::memcpy(&bytes[8], &all, 8);
        std::memcpy(&bytes[16], &kind, 2);
        std::memcpy(&bytes[20], &header, 4);
        std::memcpy(&bytes[24], &payload, 8);
        std::memcpy(&bytes[44], &arch, 4);
        return bytes + text + '\0';
    };
    const std::string first = fat(kCaller), second = fat(kCallee), empty = fat("").substr(0, 16);
    const void* linked[] = {first.data(), second.data(), nullptr};
    const struct {
        std::uint32_t magic = 0x466243b1, version = 2;
        const void* data;
        const void* const* parts;
    } wrapper{.data = empty.data(), .parts = linked};
    CUmodule module = nullptr;
    OK(cuModuleLoadData, &module, &wrapper);
    EXPECT(value_of(module) == 3 + 20 + 1 + 100);
}

}  // namespace
