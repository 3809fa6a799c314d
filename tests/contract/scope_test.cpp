// The state of the calling thread around the port's calls: what is done together leaves it as it was.
#include "shim/device/scope.h"

#include <thread>

#include "tests/contract/driver_backend.h"

namespace lms::contract {
namespace {

using device::driver;
using device::Together;

// Told by changing it twice; where the driver refuses that, again.
CUstreamCaptureMode mode_of_thread() {
    const auto exchange = [](CUstreamCaptureMode& mode) {
        while (driver().cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS) {
        }
    };
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    exchange(mode);
    CUstreamCaptureMode again = mode;
    exchange(again);
    return mode;
}

void call(Port& port) {
    device::MemoryInfo info{};
    EXPECT(port.memory_info(info) == CUDA_SUCCESS);
}

DRIVER_TEST("scope: calls together share the mode of the first, and the thread's own comes back", {}) {
    Port& port = backend.port();
    {
        const Together together;
        EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_GLOBAL);  // nothing was called
        call(port);
        EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_RELAXED);
        {
            const Together within;
            call(port);
        }
        EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_GLOBAL);
    {
        const device::RelaxedCapture relaxed;
        {
            const Together together;
            call(port);
        }
        EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_GLOBAL);
    call(port);
    EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

DRIVER_TEST("scope: together in a thread without a context, and where one is lent to it", {}) {
    Port& port = backend.port();
    std::thread([&] {
        const auto asked = [] {
            CUcontext current = nullptr;
            EXPECT(driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
            return current;
        };
        const CUcontext lent = driver_backend().context();
        const Together together;
        call(port);
        EXPECT(asked() == nullptr);
        EXPECT(device::current_context() == nullptr);
        {
            const device::ContextForNone for_none(lent);
            EXPECT(device::current_context() == lent);
            call(port);
        }
        EXPECT(asked() == nullptr);
        EXPECT(device::current_context() == nullptr);
        {
            const device::InContext in_context(lent);
            EXPECT(device::current_context() == lent);
            EXPECT(asked() == lent);
        }
        EXPECT(device::current_context() == nullptr);
    }).join();
}

// Of several calls together the first exchange and the last, and in one round both.
constexpr char kRefused[] =
    "cuThreadExchangeStreamCaptureMode:40,cuThreadExchangeStreamCaptureMode:45,"
    "cuThreadExchangeStreamCaptureMode:50,cuThreadExchangeStreamCaptureMode:55,"
    "cuThreadExchangeStreamCaptureMode:61,cuThreadExchangeStreamCaptureMode:66";

DRIVER_TEST("scope: a refused exchange is made up for, together too", {{"SIMCUDA_FAIL", kRefused}}) {
    for (int i = 0; i < 40; ++i) {
        {
            const Together together;
            call(backend.port());
            call(backend.port());
        }
        EXPECT(mode_of_thread() == CU_STREAM_CAPTURE_MODE_GLOBAL);
    }
}

}  // namespace
}  // namespace lms::contract
