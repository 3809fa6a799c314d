// Drivers that err on purpose (SIMCUDA_PERVERSE), where tests/entry and tests/e2e do not show by themselves
// that they do.
#include "tests/simcuda/kernels.h"
#include "tests/simcuda/vmm.h"

namespace {

using namespace sim;

// counts[0] is written, to counts[1] added.
constexpr const char* kWrites = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry writes(.param .u64 counts)
{
    .reg .b32 %r; .reg .b64 %a;
    ld.param.u64 %a, [counts];
    st.global.v2.u32 [%a], {7, 7};
    atom.global.add.u32 %r, [%a + 8], 5;
    st.global.u32 [%a + 12], %r;
    red.global.add.u32 [%a + 8], 5;
    ret;
}
)";

// What the kernel leaves of words that were 1.
std::vector<std::uint32_t> written_at(CUdeviceptr counts) {
    CUmodule module = nullptr;
    CUfunction writes = nullptr;
    OK(cuModuleLoadData, &module, kWrites);
    OK(cuModuleGetFunction, &writes, module, "writes");
    OK(cuMemsetD32, counts, 1, 4);
    LAUNCH(writes, 1, 1, nullptr, counts);
    std::vector<std::uint32_t> words(4);
    OK(cuMemcpyDtoH, words.data(), counts, 16);
    return words;
}

using Words = std::vector<std::uint32_t>;

// Mapped memory of the host, then what else kernels write to.
Words written_in_place() {
    const Gpu gpu;
    CUdeviceptr device = 0;
    void* pinned = nullptr;
    OK(cuMemAlloc, &device, 16);
    OK(cuMemHostAlloc, &pinned, 16, 0);
    const CUdeviceptr address = reserve(2 * kGranule);
    map(address, kGranule, create(kGranule));
    map(address + kGranule, kGranule, create(kGranule, on_host()));
    for (const CUdeviceptr other : {device, reinterpret_cast<CUdeviceptr>(pinned), address})
        EXPECT((written_at(other) == Words{7, 7, 11, 1}));
    return written_at(address + kGranule);
}

SIM_TEST("perverse: other drivers' kernels write to host-located memory as to any", {}) {
    EXPECT((written_in_place() == Words{7, 7, 11, 1}));
}

SIM_TEST("perverse: what kernels store to host-located memory is lost, and nothing else",
         {{"SIMCUDA_PERVERSE", "host-writes-lost"}}) {
    EXPECT((written_in_place() == Words{1, 1, 11, 1}));
}

SIM_TEST("perverse: what their atomics add to it is lost, and they are told what was there",
         {{"SIMCUDA_PERVERSE", "host-atomics-lost"}}) {
    EXPECT((written_in_place() == Words{7, 7, 1, 1}));
}

SIM_TEST("perverse: so it is in simulated time",
         {{"SIMCUDA_PERVERSE", "host-atomics-lost,host-writes-lost"}, {"SIMCUDA_CLOCK", "simulated"}}) {
    EXPECT((written_in_place() == Words{1, 1, 1, 1}));
}

SIM_TEST("perverse: a quarter of the memory is free and not to be had",
         {{"SIMCUDA_PERVERSE", "less-than-free"}, {"SIMCUDA_MEMORY", "64M"}}) {
    const Gpu gpu;
    create(44u << 20);
    EXPECT(free_bytes() >= 19u << 20);
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = on_device();
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &handle, 6u << 20, &properties, 0);
    CUdeviceptr address = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &address, 6u << 20);
    create(2u << 20);
    create(6u << 20, on_host());
}

SIM_TEST("perverse: a quarter of the memory can be made and not be given access to",
         {{"SIMCUDA_PERVERSE", "less-accessible"}, {"SIMCUDA_MEMORY", "64M"}}) {
    const Gpu gpu;
    const CUdeviceptr address = reserve(80u << 20);
    const auto first = create(32u << 20);
    map(address, 32u << 20, first);
    const auto second = create(20u << 20);
    const CUmemAccessDesc access = device_access();
    OK(cuMemMap, address + (32u << 20), 20u << 20, 0, second, 0);
    FAILS(CUDA_ERROR_NOT_READY, cuMemSetAccess, address + (32u << 20), 20u << 20, &access, 1);
    FAILS(CUDA_ERROR_NOT_READY, cuMemSetAccess, address + (32u << 20), 20u << 20, &access, 1);
    // What was accessible stays so, elsewhere too.
    OK(cuMemUnmap, address + (32u << 20), 20u << 20);
    map(address + (32u << 20), 32u << 20, first);
}

SIM_TEST("perverse: calls for several mappings side by side are refused, and change nothing",
         {{"SIMCUDA_PERVERSE", "mappings-apart"}}) {
    const Gpu gpu;
    const CUdeviceptr address = reserve(4u << 20);
    const CUmemAccessDesc access = device_access();
    for (const CUdeviceptr at : {address, address + (2u << 20)})
        OK(cuMemMap, at, 2u << 20, 0, create(2u << 20), 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess, address, 4u << 20, &access, 1);
    for (const CUdeviceptr at : {address, address + (2u << 20)}) OK(cuMemSetAccess, at, 2u << 20, &access, 1);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, address, 4u << 20);
    for (const CUdeviceptr at : {address, address + (2u << 20)}) OK(cuMemUnmap, at, 2u << 20);
}

SIM_TEST("perverse: copies with the host return when they are done",
         {{"SIMCUDA_PERVERSE", "copies-block"}, {"SIMCUDA_H2D_GBPS", "1"}, {"SIMCUDA_D2H_GBPS", "1"}}) {
    const Gpu gpu;
    CUdeviceptr device = 0;
    void* host = nullptr;
    OK(cuMemAlloc, &device, 8 << 20);
    OK(cuMemHostAlloc, &host, 8 << 20, 0);
    for (int round = 0; round < 4; ++round) {
        OK(cuMemcpyHtoDAsync, device, host, 8 << 20, nullptr);
        OK(cuStreamQuery, nullptr);
        OK(cuMemcpyDtoHAsync, host, device, 8 << 20, nullptr);
        OK(cuStreamQuery, nullptr);
    }
}

SIM_TEST("perverse: devices have one address, and none is found by it",
         {{"SIMCUDA_PERVERSE", "one-bus-address"}, {"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    char ids[2][16] = {};
    for (int device : {0, 1}) OK(cuDeviceGetPCIBusId, ids[device], 16, device);
    EXPECT(std::string(ids[0]) == ids[1]);
    CUdevice found = 0;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId, &found, ids[0]);
}

}  // namespace
