// Loaded code: pointers in its variables, and what is known of it once it is unloaded.
#include <array>
#include <set>
#include <string_view>

#include "tests/entry/graph_rig.h"
#include "tests/support/kernels.h"

using namespace rig;

namespace {

// The kernel copy(..., out, n), of words from the address that it finds in `source`, of state space `from`.
std::string copy_kernel(const std::string& parameters, const std::string& from) {
    return support::word_kernel(
        "copy", parameters + ".param .u64 out, .param .u32 n",
        "ld.param.u64 %a1, [out];\nld." + from + ".u64 %a2, [source];\nld.param.u32 %n, [n];\n", R"(
    add.u64 %a1, %a1, %o;
    add.u64 %a2, %a2, %o;
    ld.global.u32 %r1, [%a2];
    st.global.u32 [%a1], %r1;
)");
}

std::string with_variable(const std::string& space) {
    return support::kPtxHead + (".visible " + space + " .align 8 .u64 source;\n") + copy_kernel("", "global");
}

std::string with_parameter() {
    return support::kPtxHead + copy_kernel(".param .u64 source, ", "param");
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

// A library whose kernel is launched as the function that it is in this context.
struct ByFunction {
    CUlibrary library;
    operator CUlibrary() const { return library; }
};
CUfunction of(ByFunction code) {
    CUfunction function = nullptr;
    OK(cuKernelGetFunction, &function, reinterpret_cast<CUkernel>(of(code.library)));
    return function;
}

void run(CUfunction function, void** parameters) {
    OK(cuLaunchKernel, function, kWords / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr);
}

}  // namespace

FAMILY_TEST("code: what a variable points to is brought in, however its address was asked for", "variables") {
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
    check(ByFunction{load_library(with_variable(".global"))}, CU(cuLibraryGetGlobal));
    check(load_library(with_variable(".global .attribute(.managed)")), CU(cuLibraryGetManaged));
}

// The driver gives its handles out again, for kernels with other parameters.
// Unloading may be forbidden: while work is captured, and of a library's module.
FAMILY_TEST("code: what is not unloaded after all is known as before") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer in(kBuffer, 1);
    Buffer out(kBuffer, 2);
    Crowd crowd;
    const auto check = [&](auto code, auto get, auto&& unload) {
        CUdeviceptr variable = 0;
        std::size_t bytes = 0;
        EXPECT(get(&variable, &bytes, code, "source") == CUDA_SUCCESS);
        const CUdeviceptr from = in.at();
        OK(cuMemcpyHtoD_v2, variable, &from, sizeof from);
        CUdeviceptr to = out.at();
        unsigned n = kWords;
        void* parameters[] = {&to, &n};
        out.fill(2);
        crowd.evict(in);
        unload();
        run(of(code), parameters);
        EXPECT(in.resident());
        EXPECT(out.holds(1));
    };
    const auto while_capturing = [&](auto&& unload) {
        OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        EXPECT(unload() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CUgraph graph = nullptr;
        FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &graph);
    };
    const CUmodule module = load(with_variable(".global"));
    check(module, CU(cuModuleGetGlobal_v2),
          [&] { while_capturing([&] { return CU(cuModuleUnload)(module); }); });
    const CUlibrary library = load_library(with_variable(".global"));
    check(library, CU(cuLibraryGetGlobal),
          [&] { while_capturing([&] { return CU(cuLibraryUnload)(library); }); });
    check(library, CU(cuLibraryGetGlobal), [&] {
        CUmodule of_library = nullptr;
        OK(cuLibraryGetModule, &of_library, library);
        FAILS(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload, of_library);
    });
}

FAMILY_TEST("code: what is unloaded is forgotten", "code-unloaded") {
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
        // What is between them stays, and keeps what they leave apart.
        std::vector<decltype(load_one(""))> others;
        for (int i = 0; i < 100; ++i) {
            others.push_back(load_one(with_other_parameters()));
            run(of(others.back()), other_parameters);
        }
        OK(cuCtxSynchronize);
        std::set<CUfunction> of_others;
        for (std::size_t i = 0; i < others.size(); i += 2) {
            of_others.insert(of(others[i]));
            EXPECT(unload(others[i]) == CUDA_SUCCESS);
        }
        for (int i = 0; i < 100; ++i) {
            const auto loaded = load_one(with_parameter());
            if (!of_others.contains(of(loaded))) continue;
            crowd.evict(in);
            crowd.evict(out);
            run(of(loaded), parameters);
            EXPECT(in.resident());
            EXPECT(out.holds(1));
            return;
        }
        failed(__FILE__, __LINE__, "no handle was given out again");
    };
    check(load, CU(cuModuleUnload));
    check(load_library, CU(cuLibraryUnload));
}

namespace {

// A context ends with modules of the image `before`, each of which `look` has seen; in one made after it a
// library of the image `after` becomes a module by the handle of one of them.
template <typename Look>
CUmodule module_by_the_same_handle(const std::string& before, const std::string& after, Look&& look) {
    std::set<CUmodule> gone;
    const CUlibrary library = load_library(after);
    for (int i = 0; i < 100; ++i) {
        CUcontext context = nullptr;
        OK(cuCtxCreate_v2, &context, 0, 0);
        for (int each = 0; each < 16; ++each) {
            const CUmodule module = load(before);
            gone.insert(module);
            look(module);
        }
        OK(cuCtxDestroy_v2, context);
        OK(cuCtxCreate_v2, &context, 0, 0);
        CUmodule next = nullptr;
        OK(cuLibraryGetModule, &next, library);
        if (gone.contains(next)) return next;
        OK(cuCtxDestroy_v2, context);
    }
    failed(__FILE__, __LINE__, "no handle was given out again");
    stop();
}

}  // namespace

BODY(code_gone_with_its_context) {
    const Gpu gpu;
    const CUmodule module =
        module_by_the_same_handle(with_other_parameters(), with_parameter(), [](CUmodule before) {
            unsigned none = 0;
            void* parameters[] = {&none, &none, &none};
            run(of(before), parameters);
        });
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.evict(in);
    crowd.evict(out);
    CUdeviceptr from = in.at();
    CUdeviceptr to = out.at();
    unsigned n = kWords;
    void* parameters[] = {&from, &to, &n};
    run(of(module), parameters);
    EXPECT(in.resident());
    EXPECT(out.holds(1));
}

TEST_CASE(
    "code: a driver that does not tell layouts gives a context's handles out again, and the new are read") {
    run_both("code_gone_with_its_context", Driver::Old, {});
}

FAMILY_TEST("code: a module that is unloaded takes its own variables with it alone") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    Buffer out(kBuffer, 2);
    Crowd crowd;
    // Whichever lies lower.
    for (const std::size_t goes : {std::size_t{0}, std::size_t{1}}) {
        std::array<CUmodule, 2> modules{load(with_variable(".global")), load(with_variable(".global"))};
        for (const CUmodule module : modules) {
            CUdeviceptr variable = 0;
            std::size_t bytes = 0;
            OK(cuModuleGetGlobal_v2, &variable, &bytes, module, "source");
            const CUdeviceptr from = in.at();
            OK(cuMemcpyHtoD_v2, variable, &from, sizeof from);
        }
        OK(cuModuleUnload, modules[goes]);
        CUdeviceptr to = out.at();
        unsigned n = kWords;
        void* parameters[] = {&to, &n};
        out.fill(2);
        crowd.evict(in);
        run(of(modules[1 - goes]), parameters);
        EXPECT(in.resident());
        EXPECT(out.holds(1));
        OK(cuModuleUnload, modules[1 - goes]);
    }
}

FAMILY_TEST("code: variables go with their module's context") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    const CUmodule module =
        module_by_the_same_handle(with_variable(".global"), with_parameter(), [&](CUmodule before) {
            CUdeviceptr variable = 0;
            OK(cuModuleGetGlobal_v2, &variable, nullptr, before, "source");
            const CUdeviceptr address = in.at();
            OK(cuMemcpyHtoD_v2, variable, &address, sizeof address);
        });
    crowd.evict(in);
    crowd.evict(out);
    CUdeviceptr to = out.at();
    unsigned n = kWords;
    void* parameters[] = {&to, &to, &n};
    run(of(module), parameters);
    OK(cuCtxSynchronize);
    EXPECT(out.resident());
    EXPECT(in.evicted());
}

FAMILY_TEST("code: room is made for a module that is loaded when a variable of it is asked for") {
    const Gpu gpu;
    const Buffer in(kBuffer, 1);
    Crowd crowd;
    crowd.press();
    for (int i = 0; i < 16; ++i) {
        CUdeviceptr variable = 0;
        OK(cuModuleGetGlobal_v2, &variable, nullptr, load(with_variable(".global")), "source");
        OK(cuLibraryGetGlobal, &variable, nullptr, load_library(with_variable(".global")), "source");
    }
    EXPECT(in.holds(1));
}
