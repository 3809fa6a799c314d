// What is made to be shared between processes, opened in the process that made it.
#include <unistd.h>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

SIM_TEST("same process: an event of several processes is not opened again", {}) {
    const Gpu gpu;
    CUevent event = nullptr, opened = nullptr;
    OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    CUipcEventHandle handle{};
    OK(cuIpcGetEventHandle, &handle, event);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle, &opened, handle);
}

SIM_TEST("same process: an allocation of a pool is imported", {}) {
    const Gpu gpu;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr, imported = nullptr;
    OK(cuMemPoolCreate, &pool, &properties);
    CUdeviceptr p = 0, q = 0;
    const auto data = pattern(10'000, 4);
    OK(cuMemAllocFromPoolAsync, &p, data.size(), pool, nullptr);
    OK(cuMemcpyHtoD, p, data.data(), data.size());
    int file = -1;
    OK(cuMemPoolExportToShareableHandle, &file, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemPoolImportFromShareableHandle, &imported, reinterpret_cast<void*>(std::intptr_t{file}),
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    ::close(file);
    CUmemPoolPtrExportData exported{};
    OK(cuMemPoolExportPointer, &exported, p);
    OK(cuMemPoolImportPointer, &q, imported, &exported);
    EXPECT(q != p);
    EXPECT(read_back(q, data.size()) == data);
    OK(cuMemsetD8, q, 8, data.size());
    EXPECT(read_back(p, data.size()) == std::vector<std::uint8_t>(data.size(), 8));
    OK(cuMemFreeAsync, q, nullptr);
    OK(cuMemFreeAsync, p, nullptr);
    OK(cuCtxSynchronize);
}

}  // namespace
