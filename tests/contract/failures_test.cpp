// Calls of the port's own that the driver refuses once.
#include "tests/contract/driver_backend.h"

namespace lms::contract {
namespace {

using device::driver;

// Device memory that nobody has.
std::uint64_t free_bytes(Port& port) {
    device::MemoryInfo info{};
    NEED(port.memory_info(info) == CUDA_SUCCESS);
    return info.free_bytes;
}

// The port's own probe maps and unmaps once.
DRIVER_TEST("failures: an address that a refused mapping was not taken from can be mapped again",
            {{"SIMCUDA_FAIL", "cuMemSetAccess:2,cuMemUnmap:2"}}) {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    Address address = 0;
    CUmemGenericAllocationHandle handle{};
    NEED(port.reserve(unit, address) == CUDA_SUCCESS);
    NEED(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
    EXPECT(port.map(address, unit, handle, Place::Device) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(port.map(address, unit, handle, Place::Device) == CUDA_SUCCESS);
    EXPECT(port.unmap(address, unit) == CUDA_SUCCESS);
    EXPECT(port.release(handle) == CUDA_SUCCESS);
}

DRIVER_TEST("failures: what the driver did not take back it is asked to again",
            {{"SIMCUDA_FAIL", "cuMemUnmap:2,cuMemRelease:2"}}) {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    const std::uint64_t before = free_bytes(port);
    Address address = 0;
    CUmemGenericAllocationHandle handle{};
    NEED(port.reserve(2 * unit, address) == CUDA_SUCCESS);
    NEED(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
    NEED(port.map(address, unit, handle, Place::Device) == CUDA_SUCCESS);
    EXPECT(port.discard(address, unit) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(port.release(handle) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(free_bytes(port) == before - unit);

    NEED(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
    EXPECT(port.map(address + unit, unit, handle, Place::Device) == CUDA_SUCCESS);
    EXPECT(free_bytes(port) == before - unit);
    EXPECT(port.unmap(address + unit, unit) == CUDA_SUCCESS);
    EXPECT(port.release(handle) == CUDA_SUCCESS);
}

DRIVER_TEST("failures: what was taken away in the end is not taken away once more",
            {{"SIMCUDA_FAIL", "cuMemUnmap:2,cuMemUnmap:3"}}) {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    Address address = 0;
    CUmemGenericAllocationHandle handles[3]{};
    NEED(port.reserve(3 * unit, address) == CUDA_SUCCESS);
    for (auto& handle : handles) NEED(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
    NEED(port.map(address, unit, handles[0], Place::Device) == CUDA_SUCCESS);
    EXPECT(port.discard(address, unit) == CUDA_ERROR_OUT_OF_MEMORY);
    // It is tried again here, in vain.
    EXPECT(port.map(address + unit, unit, handles[1], Place::Device) == CUDA_SUCCESS);
    EXPECT(port.unmap(address, unit) == CUDA_SUCCESS);
    EXPECT(port.map(address, unit, handles[0], Place::Device) == CUDA_SUCCESS);
    EXPECT(port.map(address + 2 * unit, unit, handles[2], Place::Device) == CUDA_SUCCESS);
    EXPECT(port.unmap(address, unit) == CUDA_SUCCESS);
}

// Nothing is asked before it.
DRIVER_TEST("failures: a driver that answers nothing for seconds is taken to have nothing that runs",
            {{"SIMCUDA_FAIL", "cuEventQuery:1-1000000=1"}}) {
    Port& port = backend.port();
    CUevent fence = nullptr;
    NEED(port.record(port.stream(device::Direction::In), fence) == CUDA_SUCCESS);
    EXPECT(port.query(fence) == CUDA_ERROR_INVALID_VALUE);
    CUresult status = CUDA_ERROR_INVALID_VALUE;
    std::uint64_t asked = 0;
    for (; status == CUDA_ERROR_INVALID_VALUE; ++asked) {
        status = port.query(fence);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT(device::is_gone(status));
    EXPECT(asked > 100);
    // As long as it goes on so.
    EXPECT(device::is_gone(port.query(fence)));
    EXPECT(port.query_stream(port.stream(device::Direction::In)) == CUDA_SUCCESS);
    EXPECT(port.query(fence) == CUDA_ERROR_INVALID_VALUE);
    port.recycle(fence);
}

DRIVER_TEST("failures: what is waited for and not answered is waited for again",
            {{"SIMCUDA_FAIL", "cuStreamSynchronize:1-50=1"}}) {
    Port& port = backend.port();
    EXPECT(port.wait_for_stream(port.stream(device::Direction::In)) == CUDA_SUCCESS);
}

DRIVER_TEST(
    "failures: a port that is refused a stream of another context keeps those that it has, and no more",
    {{"SIMCUDA_FAIL", "cuStreamCreate:4"}, {"SIMCUDA_STREAM_BYTES", "64K"}}) {
    Port& port = backend.port();
    const std::uint64_t before = free_bytes(port);
    const CUstream in = port.stream(device::Direction::In);
    const CUstream out = port.stream(device::Direction::Out);
    EXPECT(port.work_through(driver_backend().context()) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(free_bytes(port) == before);
    EXPECT(port.stream(device::Direction::In) == in);
    EXPECT(port.stream(device::Direction::Out) == out);
    EXPECT(port.work_through(driver_backend().context()) == CUDA_SUCCESS);
    EXPECT(free_bytes(port) == before);
}

// The port's own probe asks once.
DRIVER_TEST("failures: a device is ill only from an error that stays",
            {{"SIMCUDA_FAIL", "cuStreamQuery:2=400,cuStreamQuery:3=719"}}) {
    Port& port = backend.port();
    EXPECT(port.health() == CUDA_SUCCESS);
    EXPECT(port.health() == CUDA_ERROR_LAUNCH_FAILED);
    EXPECT(port.health() == CUDA_ERROR_LAUNCH_FAILED);
}

// The first of the two that a call of the port's makes, and the second.
constexpr char kExchanges[] =
    "cuThreadExchangeStreamCaptureMode:40,cuThreadExchangeStreamCaptureMode:47,"
    "cuThreadExchangeStreamCaptureMode:54,"
    "cuThreadExchangeStreamCaptureMode:61,cuThreadExchangeStreamCaptureMode:68,"
    "cuThreadExchangeStreamCaptureMode:75";

DRIVER_TEST("failures: the thread's capture mode stays what it was", {{"SIMCUDA_FAIL", kExchanges}}) {
    for (int i = 0; i < 40; ++i) {
        device::MemoryInfo info{};
        EXPECT(backend.port().memory_info(info) == CUDA_SUCCESS);
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        while (driver().cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS) {
        }
        EXPECT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
}

}  // namespace
}  // namespace lms::contract
