// Order in time: streams, the two kinds of default stream, events, host functions and the launch queue.
#include <atomic>
#include <thread>

#include "tests/simcuda/kernels.h"

namespace {

using namespace sim;

CUstream stream_of(unsigned flags) {
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, flags);
    return stream;
}

CUevent event_of(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    CUevent event = nullptr;
    OK(cuEventCreate, &event, flags);
    return event;
}

// A kernel in a stream that runs until it is let go.
class Gate {
  public:
    explicit Gate(CUstream stream, bool per_thread = false) {
        OK(cuMemHostAlloc, reinterpret_cast<void**>(&words_), 8, 0);
        words_[0] = words_[1] = 0;
        std::uint32_t *flag = words_, *out = words_ + 1;
        void* parameters[] = {&flag, &out};
        const auto launch_kernel = reinterpret_cast<decltype(&cuLaunchKernel)>(
            symbol(per_thread ? "cuLaunchKernel_ptsz" : "cuLaunchKernel"));
        EXPECT(launch_kernel(kernels_["await"], 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr) ==
               CUDA_SUCCESS);
    }
    void open() { std::atomic_ref(words_[0]).store(1); }

  private:
    Kernels kernels_;
    std::uint32_t* words_ = nullptr;
};

SIM_TEST("stream: work of a stream is in order", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr a = 0, b = 0;
    constexpr unsigned kCount = 50'000;
    OK(cuMemAlloc, &a, 4 * kCount);
    OK(cuMemAlloc, &b, 4 * kCount);
    const CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    OK(cuMemsetD32Async, a, 0, kCount, stream);
    for (unsigned i = 0; i < 40; ++i) {
        LAUNCH(kernels["increment"], (kCount + 127) / 128, 128, stream, b, a, kCount);
        OK(cuMemcpyDtoDAsync, a, b, 4 * kCount, stream);
    }
    OK(cuStreamSynchronize, stream);
    const auto bytes = read_back(a, 4 * kCount);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] == (i % 4 == 0 ? 40 : 0)) continue;
        EXPECT(!"a byte is wrong");
        break;
    }
}

SIM_TEST("stream: the legacy stream and blocking streams wait for each other", {}) {
    const Gpu gpu;
    const CUstream blocking = stream_of(CU_STREAM_DEFAULT), free = stream_of(CU_STREAM_NON_BLOCKING);
    const CUevent in_legacy = event_of(), in_blocking = event_of(), in_free = event_of();
    Gate first(blocking);
    OK(cuEventRecord, in_legacy, nullptr);
    OK(cuEventRecord, in_free, free);
    OK(cuEventSynchronize, in_free);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, in_legacy);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, CU_STREAM_LEGACY);
    first.open();
    OK(cuEventSynchronize, in_legacy);

    Gate second(nullptr);
    OK(cuEventRecord, in_blocking, blocking);
    OK(cuEventRecord, in_free, free);
    OK(cuEventSynchronize, in_free);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, in_blocking);
    second.open();
    OK(cuEventSynchronize, in_blocking);
}

SIM_TEST("stream: two blocking streams are tied by a legacy operation between them", {}) {
    const Gpu gpu;
    const CUstream one = stream_of(CU_STREAM_DEFAULT), two = stream_of(CU_STREAM_DEFAULT);
    const CUevent event = event_of();
    Gate gate(one);
    OK(cuEventRecord, event, two);
    OK(cuEventSynchronize, event);  // nothing ties them yet
    OK(cuEventRecord, event, CU_STREAM_LEGACY);
    OK(cuEventRecord, event, two);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, event);
    gate.open();
    OK(cuEventSynchronize, event);
}

SIM_TEST("stream: per-thread default streams are each their own and wait for the legacy stream", {}) {
    const Gpu gpu;
    Gate gate(nullptr, true);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, CU_STREAM_PER_THREAD);
    unsigned long long mine = 0, others = 0;
    OK(cuStreamGetId, CU_STREAM_PER_THREAD, &mine);
    std::thread([&] {
        OK(cuCtxSetCurrent, gpu.context);
        OK(cuStreamGetId, CU_STREAM_PER_THREAD, &others);
        OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    }).join();
    EXPECT(mine != others);
    const CUevent event = event_of();
    OK(cuEventRecord, event, CU_STREAM_LEGACY);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, event);
    gate.open();
    OK(cuEventSynchronize, event);
}

SIM_TEST("stream: a stream waits for an event as it was when the wait was made", {}) {
    const Gpu gpu;
    const CUstream one = stream_of(CU_STREAM_NON_BLOCKING), two = stream_of(CU_STREAM_NON_BLOCKING),
                   three = stream_of(CU_STREAM_NON_BLOCKING);
    const CUevent event = event_of(), end = event_of();
    OK(cuStreamWaitEvent, two, event, 0);  // never recorded: no wait
    OK(cuStreamSynchronize, two);
    OK(cuEventQuery, event);
    Gate gate(one);
    OK(cuEventRecord, event, one);
    OK(cuStreamWaitEvent, two, event, 0);
    OK(cuEventRecord, end, two);
    OK(cuEventRecord, event, three);  // recorded anew: the earlier wait stays
    OK(cuEventSynchronize, event);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, end);
    OK(cuEventDestroy, event);  // the wait goes on without it
    gate.open();
    OK(cuEventSynchronize, end);
}

SIM_TEST("stream: events time what lies between them", {{"SIMCUDA_KERNEL_US", "20000"}}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    const CUevent start = event_of(CU_EVENT_DEFAULT), end = event_of(CU_EVENT_DEFAULT), untimed = event_of();
    float milliseconds = 0;
    OK(cuEventRecord, start, nullptr);
    LAUNCH(kernels["store"], 1, 1, nullptr, p, 1);
    OK(cuEventRecord, end, nullptr);
    OK(cuEventRecord, untimed, nullptr);
    OK(cuEventSynchronize, untimed);
    OK(cuEventElapsedTime, &milliseconds, start, end);
    EXPECT(milliseconds >= 20.0f);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime, &milliseconds, start, untimed);
}

std::atomic<int> host_calls{0};
std::atomic<CUresult> inside{CUDA_SUCCESS};

SIM_TEST("stream: host functions run in order, and CUDA calls inside them fail", {}) {
    const Gpu gpu;
    const CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    Gate gate(stream);
    const CUhostFn function = [](void* data) {
        std::size_t free = 0, total = 0;
        inside = CU(cuMemGetInfo)(&free, &total);
        host_calls += *static_cast<int*>(data);
    };
    int one = 1, ten = 10;
    OK(cuLaunchHostFunc, stream, function, &one);
    OK(cuLaunchHostFunc, stream, function, &ten);
    EXPECT(host_calls == 0);
    gate.open();
    OK(cuStreamSynchronize, stream);
    EXPECT(host_calls == 11);
    EXPECT(inside == CUDA_ERROR_NOT_PERMITTED);
    OK(
        cuStreamAddCallback, stream,
        [](CUstream, CUresult status, void* data) {
            *static_cast<int*>(data) = status == CUDA_SUCCESS ? 5 : 6;
        },
        &one, 0);
    OK(cuStreamSynchronize, stream);
    EXPECT(one == 5);
}

SIM_TEST("stream: a full launch queue blocks the call until there is room", {{"SIMCUDA_QUEUE", "8"}}) {
    const Gpu gpu;
    const CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    const CUevent event = event_of();
    Gate gate(stream);
    std::atomic<int> submitted{0};
    std::thread submitter([&] {
        OK(cuCtxSetCurrent, gpu.context);
        for (int i = 0; i < 100; ++i) {
            OK(cuEventRecord, event, stream);
            ++submitted;
        }
    });
    while (submitted < 7) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        EXPECT(submitted == 7);
    }
    gate.open();
    submitter.join();
    OK(cuStreamSynchronize, stream);
    EXPECT(submitted == 100);
}

SIM_TEST("stream: streams wait for values and write them", {}) {
    const Gpu gpu;
    const CUstream one = stream_of(CU_STREAM_NON_BLOCKING), two = stream_of(CU_STREAM_NON_BLOCKING);
    const CUevent event = event_of();
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 16);
    OK(cuMemsetD32, p, 0, 4);
    OK(cuCtxSynchronize);
    OK(cuStreamWaitValue32, one, p, 3, CU_STREAM_WAIT_VALUE_GEQ);
    OK(cuStreamWaitValue64, one, p + 8, 4, CU_STREAM_WAIT_VALUE_AND);
    OK(cuEventRecord, event, one);
    OK(cuStreamWriteValue32, two, p, 2, 0);
    OK(cuStreamWriteValue64, two, p + 8, 12, 0);
    OK(cuStreamSynchronize, two);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, event);
    OK(cuStreamWriteValue32, two, p, 5, 0);
    OK(cuEventSynchronize, event);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32, one, p + 1, 0, 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32, one, p + 16, 0, 0);
}

SIM_TEST("stream: destroying a stream lets its work finish", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    const CUstream stream = stream_of(CU_STREAM_DEFAULT);
    Gate gate(stream);
    LAUNCH(kernels["store"], 1, 1, stream, p, 123);
    OK(cuStreamDestroy, stream);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery, stream);
    const CUevent event = event_of();
    OK(cuEventRecord, event, CU_STREAM_LEGACY);  // still waits for it
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, event);
    gate.open();
    OK(cuCtxSynchronize);
    EXPECT(read_back(p, 1)[0] == 123);
}

SIM_TEST("stream: a context's event waits for all of its streams, and none waits for it", {}) {
    const Gpu gpu;
    const CUstream one = stream_of(CU_STREAM_NON_BLOCKING), two = stream_of(CU_STREAM_NON_BLOCKING);
    const CUevent event = event_of();
    Gate first(one), own(nullptr, true);
    OK(cuCtxRecordEvent, gpu.context, event);
    Gate later(two);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, event);
    first.open();
    OK(cuStreamSynchronize, one);
    FAILS(CUDA_ERROR_NOT_READY, cuEventQuery, event);
    own.open();
    OK(cuEventSynchronize, event);
    FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, two);
    later.open();
    OK(cuStreamSynchronize, two);
    OK(cuStreamBeginCapture, one, CU_STREAM_CAPTURE_MODE_RELAXED);
    FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxRecordEvent, gpu.context, event);
    CUgraph graph = nullptr;
    FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, one, &graph);
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuCtxRecordEvent, gpu.context, nullptr);
}

SIM_TEST("stream: calls tell one that was destroyed from what never was one", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4);
    const CUevent event = event_of();
    CUcontext other = nullptr;
    CUstream of_other = nullptr;
    OK(cuCtxCreate, &other, nullptr, 0, gpu.device);
    OK(cuStreamCreate, &of_other, 0);
    OK(cuCtxDestroy, other);
    OK(cuCtxSetCurrent, gpu.context);
    const CUstream own = stream_of(CU_STREAM_DEFAULT);
    OK(cuStreamDestroy, own);
    int word = 0;
    for (const CUstream gone : {own, of_other}) {
        FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamQuery, gone);
        FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamSynchronize, gone);
        FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemsetD8Async, p, 0, 4, gone);
        FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuEventRecord, event, gone);
        FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamDestroy, gone);
        FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemAllocAsync, &p, 4, gone);
        EXPECT(launch(kernels["store"], 1, 1, gone, p, 1u) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery, reinterpret_cast<CUstream>(&word));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy, reinterpret_cast<CUstream>(&word));
    // A new stream may have an old one's handle.
    for (int i = 0; i < 20; ++i) {
        const CUstream stream = stream_of(CU_STREAM_DEFAULT);
        OK(cuStreamSynchronize, stream);
        OK(cuStreamDestroy, stream);
    }
}

SIM_TEST("stream: a batch has fewer than 256 values to write and await", {}) {
    const Gpu gpu;
    CUdeviceptr words = 0;
    OK(cuMemAlloc, &words, 256 * 4);
    OK(cuMemsetD8, words, 0, 256 * 4);
    std::vector<CUstreamBatchMemOpParams> items(256);
    for (unsigned i = 0; i < 256; ++i) {
        items[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        items[i].writeValue.address = words + 4 * i;
        items[i].writeValue.value = i + 1;
    }
    FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp, nullptr, 256, items.data(), 0);
    OK(cuStreamBatchMemOp, nullptr, 255, items.data(), 0);
    OK(cuCtxSynchronize);
    std::vector<std::uint32_t> seen(256);
    OK(cuMemcpyDtoH, seen.data(), words, 256 * 4);
    for (unsigned i = 0; i < 256; ++i) EXPECT(seen[i] == (i < 255 ? i + 1 : 0));
}

SIM_TEST("stream: idle threads sleep", {}) {
    const Gpu gpu;
    const Kernels kernels;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 1 << 20);
    LAUNCH(kernels["store"], 1, 1, nullptr, p, 1);
    read_back(p, 1 << 20);
    OK(cuCtxSynchronize);
    const auto cpu_seconds = [] {
        timespec time{};
        ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT(cpu_seconds() - before < 0.02);
}

}  // namespace
