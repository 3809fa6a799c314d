// What is looked up by name is what is linked; tests/interpose has every name, version and mode.
#include "tests/entry/rig.h"

using namespace rig;

FAMILY_TEST("lookups: both forms of cuGetProcAddress give the shim's functions", "lookups") {
    const Gpu gpu;
    CUdriverProcAddressQueryResult status{};
    void* found[2] = {};
    OK(cuGetProcAddress, "cuMemAlloc", &found[0], 3020, CU_GET_PROC_ADDRESS_DEFAULT);
    OK(cuGetProcAddress_v2, "cuMemAlloc", &found[1], 3020, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    EXPECT(status == CU_GET_PROC_ADDRESS_SUCCESS);
    for (void* const allocate : found) {
        std::vector<CUdeviceptr> buffers(12);  // more than the GPU has
        for (CUdeviceptr& buffer : buffers)
            EXPECT(reinterpret_cast<decltype(&cuMemAlloc_v2)>(allocate)(&buffer, kBuffer) == CUDA_SUCCESS);
        for (const CUdeviceptr buffer : buffers) OK(cuMemFree_v2, buffer);
    }
}
