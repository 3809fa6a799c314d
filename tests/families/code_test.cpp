// Loaded code: pointers in its variables, and what is known of it once it is unloaded.
#include <set>
#include <string_view>

#include "tests/families/graph_rig.h"

using namespace rig;

namespace {

// The kernel copy(..., out, n), of words from the address that it finds in `source`, of state space `from`.
std::string copy_kernel(const std::string& parameters, const std::string& from) {
    return ".visible .entry copy(" + parameters + R"(.param .u64 out, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %a<6>;
    ld.param.u64 %a1, [out];
    ld.)" + from +
           R"(.u64 %a2, [source];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r3, %r3, %r4, %r5;
    setp.ge.u32 %p, %r3, %r2;
    @%p bra DONE;
    mul.wide.u32 %a3, %r3, 4;
    add.u64 %a4, %a2, %a3;
    add.u64 %a5, %a1, %a3;
    ld.global.u32 %r6, [%a4];
    st.global.u32 [%a5], %r6;
DONE:
    ret;
}
)";
}

constexpr const char* kHead = ".version 7.0\n.target sm_75\n.address_size 64\n";

std::string with_variable(const std::string& space) {
    return kHead + (".visible " + space + " .align 8 .u64 source;\n") + copy_kernel("", "global");
}

std::string with_parameter() {
    return kHead + copy_kernel(".param .u64 source, ", "param");
}

// As long a text, of a kernel of that name whose parameters are half as wide; it does nothing for an n of 0.
std::string with_other_parameters() {
    std::string text = with_parameter();
    const auto replace = [&](std::string_view from, std::string_view to) {
        for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
            text.replace(at, from.size(), to);
    };
    replace(".param .u64", ".param .u32");
    replace("ld.param.u64 %a", "ld.param.u32 %r");
    return text;
}

CUmodule load(const std::string& image) {
    CUmodule module = nullptr;
    OK(cuModuleLoadData, &module, image.c_str());
    return module;
}

CUlibrary load_library(const std::string& image) {
    CUlibrary library = nullptr;
    OK(cuLibraryLoadData, &library, image.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    return library;
}

CUfunction of(CUmodule module) {
    CUfunction function = nullptr;
    OK(cuModuleGetFunction, &function, module, "copy");
    return function;
}

CUfunction of(CUlibrary library) {
    CUkernel kernel = nullptr;
    OK(cuLibraryGetKernel, &kernel, library, "copy");
    return reinterpret_cast<CUfunction>(kernel);
}

void run(CUfunction function, void** parameters) {
    OK(cuLaunchKernel, function, kWords / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
}

}  // namespace

FAMILY_TEST("code: what a variable points to is brought in, however its address was asked for") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    Buffer out(kBuffer, 2);
    Crowd crowd;
    const auto check = [&](auto code, auto get) {
        CUdeviceptr variable = 0;
        std::size_t bytes = 0;
        EXPECT(get(&variable, &bytes, code, "source") == CUDA_SUCCESS);
        EXPECT(bytes == sizeof(CUdeviceptr));
        const CUdeviceptr from = in.at();
        OK(cuMemcpyHtoD_v2, variable, &from, sizeof from);
        CUdeviceptr to = out.at();
        unsigned n = kWords;
        void* parameters[] = {&to, &n};
        out.fill(2);
        crowd.evict(in);
        run(of(code), parameters);
        EXPECT(in.resident());
        EXPECT(out.holds(1));
    };
    check(load(with_variable(".global")), CU(cuModuleGetGlobal_v2));
    check(load_library(with_variable(".global")), CU(cuLibraryGetGlobal));
    check(load_library(with_variable(".global .attribute(.managed)")), CU(cuLibraryGetManaged));
}

// The driver gives its handles out again, for kernels with other parameters.
FAMILY_TEST("code: what is unloaded is forgotten") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.press();
    const auto check = [&](auto load_one, auto unload) {
        CUdeviceptr from = in.at();
        CUdeviceptr to = out.at();
        unsigned n = kWords;
        unsigned none = 0;
        void* parameters[] = {&from, &to, &n};
        void* other_parameters[] = {&none, &none, &none};
        std::set<CUfunction> of_others;
        for (int i = 0; i < 100; ++i) {
            const auto other = load_one(with_other_parameters());
            of_others.insert(of(other));
            run(of(other), other_parameters);
            OK(cuCtxSynchronize);
            EXPECT(unload(other) == CUDA_SUCCESS);
            const auto loaded = load_one(with_parameter());
            if (of_others.contains(of(loaded))) {
                crowd.evict(in);
                crowd.evict(out);
                run(of(loaded), parameters);
                EXPECT(in.resident());
                EXPECT(out.holds(1));
                return;
            }
            EXPECT(unload(loaded) == CUDA_SUCCESS);
        }
        failed(__FILE__, __LINE__, "no handle was given out again");
    };
    check(load, CU(cuModuleUnload));
    check(load_library, CU(cuLibraryUnload));
}
