// Which PTX of a fat binary is taken, and what is refused.
#include <cstring>

#include "tests/simcuda/kernels.h"
#include "tests/support/fat_binary.h"

namespace {

using namespace sim;
using support::FatBinary;
using support::Packing;

// A module whose kernel `which` stores `value` at the address it is given.
std::string storing_module(unsigned arch, unsigned value, const std::string& suffix = "") {
    return ".version 8.0\n.target sm_" + std::to_string(arch) + suffix +
           "\n.address_size 64\n"
           ".visible .entry which(.param .u64 out)\n{\n"
           "    .reg .b64 %a;\n    .reg .b32 %r;\n"
           "    ld.param.u64 %a, [out];\n    mov.u32 %r, " +
           std::to_string(value) + ";\n    st.global.u32 [%a], %r;\n    ret;\n}\n";
}

// What the kernel of the image stores.
unsigned value_of(const void* image) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr out = 0;
    OK(cuModuleLoadData, &module, image);
    OK(cuModuleGetFunction, &function, module, "which");
    OK(cuMemAlloc, &out, 4);
    LAUNCH(function, 1, 1, nullptr, out);
    unsigned value = 0;
    OK(cuMemcpyDtoH, &value, out, 4);
    OK(cuMemFree, out);
    OK(cuModuleUnload, module);
    return value;
}

unsigned device_arch(const Gpu& gpu) {
    int major = 0, minor = 0;
    OK(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu.device);
    OK(cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu.device);
    return static_cast<unsigned>(major * 10 + minor);
}

SIM_TEST("fat binary: raw, LZ4 and zstd entries, in a wrapper and bare, and plain text", {}) {
    const Gpu gpu;
    for (Packing packing : {Packing::Raw, Packing::Lz4, Packing::Zstd}) {
        FatBinary binary;
        binary.native(75).ptx(75, storing_module(75, 11), packing);
        EXPECT(value_of(binary.image()) == 11);
        struct {
            std::uint32_t magic = 0x466243b1, version = 1;
            const void* data;
            void* linked = nullptr;
        } wrapper;
        wrapper.data = binary.image();
        EXPECT(value_of(&wrapper) == 11);
    }
    EXPECT(value_of(("// a comment first\n/* and another */ " + storing_module(75, 12)).c_str()) == 12);
}

SIM_TEST("fat binary: PTX for a newer GPU needs SIMCUDA_ARCH", {{"SIMCUDA_ARCH", "80"}}) {
    const Gpu gpu;
    EXPECT(device_arch(gpu) == 80);
    FatBinary binary;
    binary.ptx(75, storing_module(75, 1)).ptx(80, storing_module(80, 2)).ptx(90, storing_module(90, 3));
    EXPECT(value_of(binary.image()) == 2);
}

SIM_TEST("fat binary: the newest PTX the device can run is taken, wherever it stands", {}) {
    const Gpu gpu;
    const unsigned arch = device_arch(gpu);
    FatBinary binary;
    binary.ptx(50, storing_module(50, 1))
        .ptx(arch, storing_module(arch, 2))
        .ptx(60, storing_module(60, 3))
        .ptx(arch + 10, storing_module(arch + 10, 4));
    EXPECT(value_of(binary.image()) == 2);
}

SIM_TEST("fat binary: PTX for one architecture alone is not taken on another", {}) {
    const Gpu gpu;
    const unsigned arch = device_arch(gpu);
    FatBinary older;
    older.ptx(arch - 5, storing_module(arch - 5, 1, "a")).ptx(50, storing_module(50, 2));
    EXPECT(value_of(older.image()) == 2);
    FatBinary own;
    own.ptx(arch, storing_module(arch, 3, "a")).ptx(50, storing_module(50, 4));
    EXPECT(value_of(own.image()) == 3);
}

SIM_TEST("fat binary: machine code alone, or PTX for newer devices, is no binary for this one", {}) {
    const Gpu gpu;
    CUmodule module = nullptr;
    FatBinary native;
    native.native(75).native(90);
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData, &module, native.image());
    FatBinary newer;
    newer.ptx(device_arch(gpu) + 1, storing_module(device_arch(gpu) + 1, 1));
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData, &module, newer.image());
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData, &module,
          "\x7f"
          "ELF");
    FatBinary empty;
    FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData, &module, empty.image());
}

void load_machine_code_twice() {
    const Gpu gpu;
    CUmodule module = nullptr;
    FatBinary native;
    native.native(75);
    for (int i = 0; i < 2; ++i)
        FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData, &module, native.image());
}

TEST_CASE("fat binary: of code that does not run here it is told what to do, once") {
    std::string said;
    CHECK(run({}, load_machine_code_twice, &said) == "");
    CHECK(said ==
          "simcuda: code without PTX for compute capability 7.5 does not run here: build it with nvcc "
          "-arch=compute_75, or set "
          "SIMCUDA_ARCH to what it has PTX for\n");
}

SIM_TEST("fat binary: what makes no sense is refused and never followed", {}) {
    const Gpu gpu;
    CUmodule module = nullptr;
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData, &module, "");
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData, &module, "nothing of the kind");
    FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData, &module, nullptr);
    FAILS(CUDA_ERROR_INVALID_PTX, cuModuleLoadData, &module,
          ".version 8.0\n.target sm_75\nno such directive\n");

    const std::string text = storing_module(75, 1);
    // Where the entry's fields are, from the start of the fat binary: header size, payload, compressed and
    // plain size.
    for (const std::size_t field : {20u, 24u, 32u, 72u}) {
        for (const std::uint32_t wrong : {0u, 1u, 0x7FFF'FFFFu, 0xFFFF'FFFFu}) {
            FatBinary binary;
            binary.ptx(75, text, Packing::Zstd);
            binary.image();
            std::memcpy(binary.bytes().data() + field, &wrong, sizeof(wrong));
            const CUresult result = CU(cuModuleLoadData)(&module, binary.bytes().data());
            EXPECT(result != CUDA_SUCCESS);
        }
    }
    FatBinary torn;
    torn.ptx(75, text, Packing::Zstd);
    torn.bytes()[torn.bytes().size() / 2] ^= 0x55;
    const CUresult result = CU(cuModuleLoadData)(&module, torn.image());
    EXPECT(result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_INVALID_PTX);
}

}  // namespace
