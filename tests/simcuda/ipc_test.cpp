// Memory and events shared by two processes.
#include <fcntl.h>
#include <unistd.h>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/processes.h"

namespace {

using namespace sim;

constexpr std::size_t kSharedBytes = 1'000'000;

SIM_TEST("ipc: memory of one process is read and written by another", {}) {
    const Channel channel;
    const auto other = fork_body([&] {
        const Gpu gpu;
        const Kernels kernels;
        const auto handle = Channel::receive<CUipcMemHandle>(channel.to_other);
        CUdeviceptr p = 0, again = 0;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle, &p, handle, 0);
        OK(cuIpcOpenMemHandle, &p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        EXPECT(read_back(p, kSharedBytes) == pattern(kSharedBytes, 1));
        LAUNCH(kernels["increment"], kSharedBytes / 1000, 256, nullptr, p, p,
               static_cast<std::uint32_t>(kSharedBytes / 4));
        OK(cuCtxSynchronize);
        OK(cuIpcOpenMemHandle, &again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        EXPECT(again == p);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree, p);
        OK(cuIpcCloseMemHandle, p);
        EXPECT(read_back(p, 1).size() == 1);  // one reference is left
        OK(cuIpcCloseMemHandle, p);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle, p);
        std::uint8_t byte = 0;
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH, &byte, p, 1);
        CUipcMemHandle made_up{};
        FAILS(CUDA_ERROR_INVALID_HANDLE, cuIpcOpenMemHandle, &p, made_up, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        Channel::send(channel.to_first, true);
    });
    const Gpu gpu;
    CUdeviceptr before = 0, p = 0;
    OK(cuMemAlloc, &before, 12345);  // so that it does not lie at the beginning
    OK(cuMemAlloc, &p, kSharedBytes);
    auto expected = pattern(kSharedBytes, 1);
    OK(cuMemcpyHtoD, p, expected.data(), kSharedBytes);
    OK(cuCtxSynchronize);  // or it may be on its way
    CUipcMemHandle handle{};
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle, &handle, p + 4096);
    void* pinned = nullptr;
    OK(cuMemHostAlloc, &pinned, 4096, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle, &handle, reinterpret_cast<CUdeviceptr>(pinned));
    OK(cuIpcGetMemHandle, &handle, p);
    CUdeviceptr own = 0;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle, &own, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    Channel::send(channel.to_other, handle);
    Channel::receive<bool>(channel.to_first);
    join(other);
    auto* words = reinterpret_cast<std::uint32_t*>(expected.data());
    for (std::size_t i = 0; i < kSharedBytes / 4; ++i) ++words[i];
    EXPECT(read_back(p, kSharedBytes) == expected);
}

SIM_TEST("ipc: an event orders the work of two processes", {{"SIMCUDA_H2D_GBPS", "0.5"}}) {
    const Channel channel;
    struct Handles {
        CUipcMemHandle memory;
        CUipcEventHandle event;
    };
    const auto other = fork_body([&] {
        const Gpu gpu;
        const auto handles = Channel::receive<Handles>(channel.to_other);
        CUdeviceptr p = 0, copy = 0;
        OK(cuIpcOpenMemHandle, &p, handles.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
        OK(cuMemAlloc, &copy, kSharedBytes);
        CUevent event = nullptr;
        OK(cuIpcOpenEventHandle, &event, handles.event);
        // Waits on the device for the copy of the other process.
        OK(cuStreamWaitEvent, nullptr, event, 0);
        OK(cuMemcpyDtoDAsync, copy, p, kSharedBytes, nullptr);
        OK(cuEventRecord, event, nullptr);
        EXPECT(read_back(copy, kSharedBytes) == pattern(kSharedBytes, 2));
        Channel::send(channel.to_first, true);
        Channel::receive<bool>(channel.to_other);
        OK(cuEventDestroy, event);
    });
    const Gpu gpu;
    CUevent event = nullptr;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuEventCreate, &event, CU_EVENT_INTERPROCESS);  // times what it must not
    OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    Handles handles{};
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle, &handles.event, event);
    OK(cuEventCreate, &event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    OK(cuEventQuery, event);  // never recorded: nothing to wait for
    OK(cuIpcGetEventHandle, &handles.event, event);
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, kSharedBytes);
    OK(cuIpcGetMemHandle, &handles.memory, p);
    void* pinned = nullptr;
    OK(cuMemHostAlloc, &pinned, kSharedBytes, 0);
    const auto data = pattern(kSharedBytes, 2);
    std::copy(data.begin(), data.end(), static_cast<std::uint8_t*>(pinned));
    OK(cuMemcpyHtoDAsync, p, pinned, kSharedBytes, nullptr);
    OK(cuEventRecord, event, nullptr);
    Channel::send(channel.to_other, handles);
    OK(cuEventSynchronize, event);
    Channel::receive<bool>(channel.to_first);
    OK(cuEventSynchronize, event);  // the other's record
    OK(cuEventQuery, event);
    Channel::send(channel.to_other, true);
    join(other);
}

SIM_TEST("ipc: an owner that is gone", {}) {
    const Channel channel;
    const auto other = fork_body([&] {
        const Gpu gpu;
        CUdeviceptr p = 0;
        OK(cuMemAlloc, &p, kSharedBytes);
        CUipcMemHandle handle{};
        OK(cuIpcGetMemHandle, &handle, p);
        Channel::send(channel.to_first, handle);
    });
    const auto handle = Channel::receive<CUipcMemHandle>(channel.to_first);
    join(other);
    const Gpu gpu;
    CUdeviceptr p = 0;
    FAILS(CUDA_ERROR_MAP_FAILED, cuIpcOpenMemHandle, &p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

SIM_TEST("ipc: shareable handles and pools", {}) {
    const Channel channel;
    struct Shared {
        int process, allocation, pool;
        CUmemPoolPtrExportData pointer;
    };
    constexpr std::size_t kGranule = 2 << 20;
    const auto map = [](CUmemGenericAllocationHandle handle) {
        CUdeviceptr address = 0;
        OK(cuMemAddressReserve, &address, kGranule, 0, 0, 0);
        OK(cuMemMap, address, kGranule, 0, handle, 0);
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(cuMemSetAccess, address, kGranule, &access, 1);
        return address;
    };
    const auto other = fork_body([&] {
        const Gpu gpu;
        const auto shared = Channel::receive<Shared>(channel.to_other);
        const auto descriptor = [&](int file) {  // as a socket would pass it
            const std::string path =
                "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(file);
            return ::open(path.c_str(), O_RDWR);
        };
        CUmemGenericAllocationHandle handle = 0;
        const int file = descriptor(shared.allocation);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle, &handle,
              reinterpret_cast<void*>(std::intptr_t{channel.to_other[0]}),
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        OK(cuMemImportFromShareableHandle, &handle, reinterpret_cast<void*>(std::intptr_t{file}),
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        ::close(file);
        const CUdeviceptr p = map(handle);
        EXPECT(read_back(p, kGranule) == pattern(kGranule, 3));
        OK(cuMemsetD8, p, 0x5C, kGranule);

        CUmemoryPool pool = nullptr;
        const int pool_file = descriptor(shared.pool);
        OK(cuMemPoolImportFromShareableHandle, &pool, reinterpret_cast<void*>(std::intptr_t{pool_file}),
           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        CUmemPoolPtrExportData data = shared.pointer;
        CUdeviceptr q = 0, r = 0;
        OK(cuMemPoolImportPointer, &q, pool, &data);
        EXPECT(read_back(q, kSharedBytes) == pattern(kSharedBytes, 4));
        OK(cuMemsetD8, q, 0x6D, kSharedBytes);
        FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync, &r, 4096, pool, nullptr);
        OK(cuMemFreeAsync, q, nullptr);
        OK(cuCtxSynchronize);
        OK(cuMemPoolDestroy, pool);
        Channel::send(channel.to_first, true);
    });
    const Gpu gpu;
    CUmemAllocationProp property{};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle plain = 0, handle = 0;
    Shared shared{::getpid(), -1, -1, {}};
    OK(cuMemCreate, &plain, kGranule, &property, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle, &shared.allocation, plain,
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    const std::size_t before = free_bytes();
    OK(cuMemCreate, &handle, kGranule, &property, 0);
    EXPECT(free_bytes() == before - kGranule);
    const CUdeviceptr p = map(handle);
    const auto data = pattern(kGranule, 3);
    OK(cuMemcpyHtoD, p, data.data(), kGranule);
    OK(cuMemExportToShareableHandle, &shared.allocation, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMemExportToShareableHandle, &shared.pool, handle,
          CU_MEM_HANDLE_TYPE_FABRIC, 0);

    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = nullptr;
    OK(cuMemPoolCreate, &pool, &properties);
    CUdeviceptr q = 0;
    OK(cuMemAllocFromPoolAsync, &q, kSharedBytes, pool, nullptr);
    const auto pooled = pattern(kSharedBytes, 4);
    OK(cuMemcpyHtoD, q, pooled.data(), kSharedBytes);
    OK(cuCtxSynchronize);
    OK(cuMemPoolExportToShareableHandle, &shared.pool, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemPoolExportPointer, &shared.pointer, q);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer, &shared.pointer, p);
    Channel::send(channel.to_other, shared);
    Channel::receive<bool>(channel.to_first);
    join(other);
    EXPECT(read_back(p, kGranule) == std::vector<std::uint8_t>(kGranule, 0x5C));
    EXPECT(read_back(q, kSharedBytes) == std::vector<std::uint8_t>(kSharedBytes, 0x6D));
}

}  // namespace
