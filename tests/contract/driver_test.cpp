// What only a driver can do to the port: contexts, captures, refusals and faults.
#include <thread>

#include "tests/contract/driver_backend.h"

namespace lms::contract {
namespace {

using device::driver;
using device::DriverPort;

// One call of each kind that the port makes.
void use_everything(Port& port) {
    device::MemoryInfo info{};
    EXPECT(port.memory_info(info) == CUDA_SUCCESS);
    {
        const Mapped memory(port, Place::Device, port.granularity());
        Address host = 0;
        CUevent event = nullptr;
        EXPECT(port.pin(port.granularity(), host) == CUDA_SUCCESS);
        EXPECT(port.copy(host, memory.alias, memory.bytes, Direction::Out) == CUDA_SUCCESS);
        EXPECT(port.record(port.stream(Direction::Out), event) == CUDA_SUCCESS);
        EXPECT(port.wait_in_stream(port.stream(Direction::In), event) == CUDA_SUCCESS);
        EXPECT(port.copy(memory.alias, host, memory.bytes, Direction::In) == CUDA_SUCCESS);
        await(port, event);
        port.recycle(event);
        EXPECT(port.record(port.stream(Direction::In), event) == CUDA_SUCCESS);
        await(port, event);
        port.recycle(event);
        EXPECT(port.unpin(host) == CUDA_SUCCESS);
    }
    EXPECT(port.health() == CUDA_SUCCESS);
}

DRIVER_TEST("driver: the caller's context stays what it was, current or not", {}) {
    Port& port = backend.port();
    CUcontext current = nullptr;
    use_everything(port);
    EXPECT(port.wait_for_stream(port.stream(Direction::In)) == CUDA_SUCCESS);
    EXPECT(driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    EXPECT(current == driver_backend().context());
    std::thread([&] {
        use_everything(port);
        EXPECT(port.wait_for_stream(port.stream(Direction::In)) == CUDA_SUCCESS);
        CUcontext none = driver_backend().context();
        EXPECT(driver().cuCtxGetCurrent(&none) == CUDA_SUCCESS);
        EXPECT(none == nullptr);
    }).join();
}

DRIVER_TEST("driver: a program's capture in the strictest mode survives the port's calls, from any thread",
            {}) {
    Port& port = backend.port();
    const CUstream stream = backend.stream();
    NEED(driver().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    use_everything(port);
    std::thread([&] { use_everything(port); }).join();
    CUgraph graph = nullptr;
    EXPECT(driver().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
    EXPECT(graph != nullptr);
    std::size_t nodes = 99;
    EXPECT(driver().cuGraphGetNodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
    EXPECT(nodes == 0);
    // And the thread's own mode is as it was.
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    EXPECT(driver().cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
    EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

DRIVER_TEST("driver: set-access that is not ready yet is asked again", {{"SIMCUDA_NOT_READY", "2"}}) {
    for (int i = 0; i < 5; ++i) {
        const Mapped memory(backend.port(), Place::Device, backend.port().granularity());
        backend.write(memory.address, pattern(1, 16));
        EXPECT(backend.read(memory.alias, 16) == pattern(1, 16));
    }
}

// The port's own probe maps once.
DRIVER_TEST("driver: a mapping that gets no access is no mapping", {{"SIMCUDA_FAIL", "cuMemSetAccess:2"}}) {
    Port& port = backend.port();
    Address address = 0;
    CUmemGenericAllocationHandle handle{};
    NEED(port.reserve(port.granularity(), address) == CUDA_SUCCESS);
    NEED(port.create(port.granularity(), Place::Device, handle) == CUDA_SUCCESS);
    EXPECT(port.map(address, port.granularity(), handle, Place::Device) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(port.map(address, port.granularity(), handle, Place::Device) == CUDA_SUCCESS);
    EXPECT(port.unmap(address, port.granularity()) == CUDA_SUCCESS);
    EXPECT(port.release(handle) == CUDA_SUCCESS);
}

DRIVER_TEST("driver: outputs of refused calls are left alone",
            {{"SIMCUDA_FAIL",
              "cuMemCreate:2,cuMemAddressReserve:2,cuMemHostAlloc:1,cuEventCreate:1,"
              "cuMemGetInfo_v2:1"}}) {
    Port& port = backend.port();
    CUmemGenericAllocationHandle handle = 42;
    Address address = 42;
    CUevent event = nullptr;
    device::MemoryInfo info{42, 43};
    EXPECT(port.create(port.granularity(), Place::Device, handle) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(handle == 42);
    EXPECT(port.reserve(port.granularity(), address) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(address == 42);
    EXPECT(port.pin(port.granularity(), address) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(address == 42);
    EXPECT(port.record(port.stream(Direction::In), event) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(event == nullptr);
    EXPECT(port.memory_info(info) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT((info.free_bytes == 42 && info.total_bytes == 43));
    use_everything(port);
}

DRIVER_TEST("driver: a driver that promises host memory and then refuses it: the next form is tried",
            {{"SIMCUDA_FAIL", "cuMemCreate:1"}}) {
    EXPECT(backend.port().maps_host_memory());
    use_everything(backend.port());
}

DRIVER_TEST("driver: a driver before CUDA 13, which has host memory by NUMA node alone",
            {{"SIMCUDA_HOST_VMM", "numa"}}) {
    EXPECT(backend.port().maps_host_memory());
    use_everything(backend.port());
    const Mapped memory(backend.port(), Place::Host, backend.port().granularity());
    const Words words = pattern(1, 256);
    backend.write(memory.address, words);
    EXPECT(backend.read(memory.address, 256) == words);
}

DRIVER_TEST("driver: and where all forms are refused, nothing is mapped and nothing has leaked",
            {{"SIMCUDA_FAIL", "cuMemCreate:1,cuMemCreate:2"},
             {"SIMCUDA_HANDLES", "1"},
             {"SIMCUDA_MAPPINGS", "2"}}) {
    EXPECT(!backend.port().maps_host_memory());
    use_everything(backend.port());
}

DRIVER_TEST("driver: a kernel's fault is the device's health from then on", {}) {
    Port& port = backend.port();
    Address nowhere = 0;
    NEED(port.reserve(port.granularity(), nowhere) == CUDA_SUCCESS);
    const CUstream stream = backend.stream();
    CUevent event = nullptr;
    NEED(port.record(stream, event) == CUDA_SUCCESS);
    backend.bump(stream, nowhere, 1);
    while (port.health() == CUDA_SUCCESS) std::this_thread::yield();
    EXPECT(port.health() == CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(port.query(event) == CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(port.wait_for_stream(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

DRIVER_TEST("driver: a port without a context asks no stream of the program's, whose capture goes on", {}) {
    Port& port = backend.port();
    CUstream blocking = nullptr;
    NEED(driver().cuStreamCreate(&blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    port.leave(driver_backend().context());
    NEED(driver().cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    EXPECT(port.health() == CUDA_SUCCESS);
    CUgraph graph = nullptr;
    EXPECT(driver().cuStreamEndCapture(blocking, &graph) == CUDA_SUCCESS);
    EXPECT(driver().cuGraphDestroy(graph) == CUDA_SUCCESS);
    EXPECT(driver().cuStreamDestroy_v2(blocking) == CUDA_SUCCESS);
    EXPECT(port.work_through(driver_backend().context()) == CUDA_SUCCESS);
}

DRIVER_TEST("driver: mapping changes beside running work leave it alone", {{"SIMCUDA_VMM_US", "50"}}) {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    const Mapped busy(port, Place::Device, unit);
    Address address = 0;
    NEED(port.reserve(unit, address) == CUDA_SUCCESS);
    backend.write(busy.address, pattern(1, 4096));
    const CUstream stream = backend.stream();
    for (std::uint32_t round = 0; round < 20; ++round) {
        CUmemGenericAllocationHandle handle{};
        backend.bump(stream, busy.address, 4096);
        EXPECT(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
        EXPECT(port.map(address, unit, handle, Place::Device) == CUDA_SUCCESS);
        backend.bump(stream, busy.alias, 4096);
        EXPECT(port.unmap(address, unit) == CUDA_SUCCESS);
        EXPECT(port.release(handle) == CUDA_SUCCESS);
    }
    EXPECT(port.wait_for_stream(stream) == CUDA_SUCCESS);
    EXPECT(backend.read(busy.address, 4096) == plus(pattern(1, 4096), 40));
}

}  // namespace
}  // namespace lms::contract
