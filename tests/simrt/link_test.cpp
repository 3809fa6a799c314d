// Linking: several PTX modules become one program.
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simcuda/kernels.h"
#include "tests/support/process.h"

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

std::string library(const char* name) {
    return support::build_dir() + "/simrt/" + name;
}

SIM_TEST("link: of an archive those members are taken that define what is missing", {}) {
    const Gpu gpu;
    CUlinkState state = nullptr;
    OK(cuLinkCreate, 0, nullptr, nullptr, &state);
    // Before or behind what needs it. Its `unused` could not be linked beside the caller.
    OK(cuLinkAddFile, state, CU_JIT_INPUT_LIBRARY, library("libparts.a").c_str(), 0, nullptr, nullptr);
    add(state, kCaller);
    void* image = nullptr;
    OK(cuLinkComplete, state, &image, nullptr);
    CUmodule module = nullptr;
    OK(cuModuleLoadData, &module, image);
    EXPECT(value_of(module) == 1003 + 20 + 1 + 100);
    OK(cuLinkDestroy, state);
}

SIM_TEST("link: an archive from memory, an object of it, and what is neither", {}) {
    const Gpu gpu;
    const std::string archive = support::read_file(library("libparts.a"));
    const auto give = [](CUlinkState state, CUjitInputType type, std::string_view bytes) {
        return CU(cuLinkAddData)(state, type, const_cast<char*>(bytes.data()), bytes.size(), "part", 0,
                                 nullptr, nullptr);
    };
    CUlinkState state = nullptr;
    OK(cuLinkCreate, 0, nullptr, nullptr, &state);
    EXPECT(give(state, CU_JIT_INPUT_LIBRARY, archive) == CUDA_SUCCESS);
    add(state, kCaller);
    void* image = nullptr;
    OK(cuLinkComplete, state, &image, nullptr);
    OK(cuLinkDestroy, state);

    OK(cuLinkCreate, 0, nullptr, nullptr, &state);
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{30}, archive.size() / 2, archive.size() - 1})
        EXPECT(give(state, CU_JIT_INPUT_LIBRARY, std::string_view(archive).substr(0, bytes)) ==
               CUDA_ERROR_INVALID_IMAGE);
    EXPECT(give(state, CU_JIT_INPUT_LIBRARY, kCallee) == CUDA_ERROR_INVALID_IMAGE);
    EXPECT(give(state, CU_JIT_INPUT_OBJECT, archive) == CUDA_ERROR_INVALID_IMAGE);
    FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuLinkAddFile, state, CU_JIT_INPUT_LIBRARY, "/nowhere.a", 0, nullptr,
          nullptr);
    // The object that defines `helper` alone begins behind the archive's tables.
    const std::size_t object = archive.find(
        "\x7f"
        "ELF",
        archive.find("helper.o") + 1);
    EXPECT(object != std::string::npos);
    EXPECT(give(state, CU_JIT_INPUT_OBJECT, std::string_view(archive).substr(object, 100)) ==
           CUDA_ERROR_INVALID_IMAGE);
    OK(cuLinkDestroy, state);
}

SIM_TEST("link: what nobody defines is told by name", {}) {
    const Gpu gpu;
    char log[256] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    CUlinkState state = nullptr;
    OK(cuLinkCreate, 2, options, values, &state);
    add(state, kCaller);
    void* image = nullptr;
    FAILS(CUDA_ERROR_UNKNOWN, cuLinkComplete, state, &image, nullptr);
    EXPECT(std::string(log) == "undefined reference to elsewhere");
    OK(cuLinkDestroy, state);
    // Declared and not used is no reference, nor is shared memory of the launch's.
    OK(cuLinkCreate, 0, nullptr, nullptr, &state);
    add(state,
        std::string(kHead) +
            ".extern .func missing ();\n.extern .global .u32 nothing;\n.extern .shared .align 4 .b8 room[];\n"
            ".visible .entry kernel()\n{ .reg .b32 %r; ld.shared.u32 %r, [room]; ret; }\n");
    OK(cuLinkComplete, state, &image, nullptr);
    OK(cuLinkDestroy, state);
}

// out[0]: the grid's threads; then of each thread its number in the grid, and what grids of no launch answer.
const std::string kGrid = std::string(kHead) + R"(
.extern .func (.param .b64 result) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.extern .func (.param .b32 result) cudaCGGetSize(.param .b64 threads, .param .b64 grids, .param .b64 handle);
.extern .func (.param .b32 result) cudaCGGetRank(.param .b64 thread, .param .b64 grid, .param .b64 handle);
.visible .entry grid(.param .u64 out, .param .u32 scope)
{
    .reg .b32 %r<8>; .reg .b64 %a<4>, %handle;
    .local .align 4 .b8 words[16];
    ld.param.u64 %a1, [out];
    ld.param.u32 %r1, [scope];
    { .param .b32 scope; .param .b64 result; st.param.b32 [scope], %r1;
      call.uni (result), cudaCGGetIntrinsicHandle, (scope); ld.param.b64 %handle, [result]; }
    mov.u64 %a2, words; cvta.local.u64 %a2, %a2; add.u64 %a3, %a2, 4;
    { .param .b64 p0; .param .b64 p1; .param .b64 p2; .param .b32 result;
      st.param.b64 [p0], %a2; st.param.b64 [p1], %a3; st.param.b64 [p2], %handle;
      call.uni (result), cudaCGGetSize, (p0, p1, p2); ld.param.b32 %r2, [result]; }
    add.u64 %a2, %a2, 8; add.u64 %a3, %a3, 8;
    { .param .b64 p0; .param .b64 p1; .param .b64 p2; .param .b32 result;
      st.param.b64 [p0], %a2; st.param.b64 [p1], %a3; st.param.b64 [p2], %handle;
      call.uni (result), cudaCGGetRank, (p0, p1, p2); ld.param.b32 %r3, [result]; }
    { .param .b64 p0; .param .b32 p1; .param .b32 result; st.param.b64 [p0], %handle; st.param.b32 [p1], 0;
      call.uni (result), cudaCGSynchronize, (p0, p1); ld.param.b32 %r4, [result]; }
    add.u32 %r2, %r2, %r3; add.u32 %r2, %r2, %r4;
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x; mad.lo.u32 %r3, %r3, %r4, %r5;
    mul.wide.u32 %a2, %r3, 16; add.u64 %a1, %a1, %a2;
    ld.local.u32 %r3, [words]; ld.local.u32 %r4, [words+4]; ld.local.u32 %r5, [words+8]; ld.local.u32 %r6, [words+12];
    add.u32 %r4, %r4, %r6;
    st.global.v4.u32 [%a1], {%r2, %r3, %r4, %r5};
    ret;
}
)";

SIM_TEST("link: NVIDIA's device runtime is linked, and a grid is known by it if it was launched for that",
         {}) {
    const Gpu gpu;
    CUlinkState state = nullptr;
    void* image = nullptr;
    OK(cuLinkCreate, 0, nullptr, nullptr, &state);
    add(state, kGrid);
    FAILS(CUDA_ERROR_UNKNOWN, cuLinkComplete, state, &image, nullptr);  // without it
    OK(cuLinkAddFile, state, CU_JIT_INPUT_LIBRARY, library("libcudadevrt.a").c_str(), 0, nullptr, nullptr);
    OK(cuLinkComplete, state, &image, nullptr);
    CUmodule module = nullptr;
    CUfunction grid = nullptr;
    CUdeviceptr out = 0;
    OK(cuModuleLoadData, &module, image);
    OK(cuModuleGetFunction, &grid, module, "grid");
    constexpr unsigned kBlocks = 5, kThreads = 40;
    OK(cuMemAlloc, &out, kBlocks * kThreads * 16);
    struct Seen {
        unsigned errors, threads, grids, rank;
    };
    std::vector<Seen> seen(kBlocks * kThreads);
    for (unsigned scope : {1u, 2u}) {
        void* parameters[] = {&out, &scope};
        OK(cuLaunchCooperativeKernel, grid, kBlocks, 1, 1, kThreads, 1, 1, 0, nullptr, parameters);
        OK(cuMemcpyDtoH, seen.data(), out, seen.size() * sizeof(Seen));
        for (unsigned i = 0; i < seen.size(); ++i) {
            EXPECT(seen[i].errors == (scope == 1 ? 0u : 3 * 999));
            if (scope == 1) EXPECT(seen[i].threads == kBlocks * kThreads);
            if (scope == 1) EXPECT(seen[i].grids == 1);
            if (scope == 1) EXPECT(seen[i].rank == i);
        }
    }
    // One whose blocks need not be there at once has no handle.
    LAUNCH(grid, kBlocks, kThreads, nullptr, out, 1u);
    OK(cuMemcpyDtoH, seen.data(), out, seen.size() * sizeof(Seen));
    for (const Seen& one : seen) EXPECT(one.errors == 3 * 999);
    OK(cuLinkDestroy, state);
}

}  // namespace
