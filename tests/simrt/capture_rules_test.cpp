// What a capture forbids, what ends it, and what each call answers.
#include <thread>

#include "tests/simrt/runtime.h"

namespace {

using namespace sim;

cudaStream_t create_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream = nullptr;
    RT_ANSWERS(cudaSuccess, cudaStreamCreateWithFlags, &stream, flags);
    return stream;
}

cudaGraph_t end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    RT_ANSWERS(cudaSuccess, cudaStreamEndCapture, stream, &graph);
    return graph;
}

cudaGraphNode_t position(cudaStream_t stream) {
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* nodes = nullptr;
    std::size_t count = 0;
    RT_ANSWERS(cudaSuccess, cudaStreamGetCaptureInfo, stream, &status, nullptr, nullptr, &nodes, nullptr,
               &count);
    EXPECT(count == 1);
    return count == 1 ? nodes[0] : nullptr;
}

void wait_for(cudaStream_t waiting, cudaStream_t waited) {
    cudaEvent_t event = nullptr;
    RT_ANSWERS(cudaSuccess, cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
    RT_ANSWERS(cudaSuccess, cudaEventRecord, event, waited);
    RT_ANSWERS(cudaSuccess, cudaStreamWaitEvent, waiting, event, 0);
}

SIM_TEST("capture: to ask the legacy stream is an error that ends no capture", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream(cudaStreamDefault);
    cudaStreamCaptureStatus status{};
    RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, cudaStreamCaptureModeRelaxed);
    RT_ANSWERS(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing, nullptr, &status);
    RT_ANSWERS(cudaErrorStreamCaptureImplicit, cudaStreamIsCapturing, cudaStreamLegacy, &status);
    RT_ANSWERS(cudaErrorStreamCaptureImplicit, cudaStreamGetCaptureInfo, nullptr, &status, nullptr, nullptr,
               nullptr, nullptr, nullptr);
    RT_ANSWERS(cudaSuccess, cudaStreamIsCapturing, cudaStreamPerThread, &status);
    EXPECT(status == cudaStreamCaptureStatusNone);
    RT_ANSWERS(cudaSuccess, cudaStreamIsCapturing, stream, &status);
    EXPECT(status == cudaStreamCaptureStatusActive);
    EXPECT(end(stream) != nullptr);
    RT_ANSWERS(cudaSuccess, cudaStreamIsCapturing, nullptr, &status);
}

SIM_TEST("capture: a null status is refused, a null graph where the program gave the graph is not", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream();
    for (const cudaStream_t any : {stream, cudaStreamLegacy, cudaStreamPerThread}) {
        RT_ANSWERS(cudaErrorInvalidValue, cudaStreamGetCaptureInfo, any, nullptr, nullptr, nullptr, nullptr,
                   nullptr, nullptr);
        RT_ANSWERS(cudaErrorInvalidValue, cudaStreamIsCapturing, any, nullptr);
    }
    RT_ANSWERS(cudaErrorInvalidValue, cudaStreamEndCapture, stream, nullptr);
    RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, cudaStreamCaptureModeRelaxed);
    RT_ANSWERS(cudaErrorInvalidValue, cudaStreamEndCapture, stream, nullptr);
    cudaGraph_t graph = end(stream);
    RT_ANSWERS(cudaSuccess, cudaStreamBeginCaptureToGraph, stream, graph, nullptr, nullptr, 0,
               cudaStreamCaptureModeRelaxed);
    RT_ANSWERS(cudaSuccess, cudaStreamEndCapture, stream, nullptr);
    RT_ANSWERS(cudaSuccess, cudaGraphDestroy, graph);
}

SIM_TEST("capture: what the program takes out of a position need not be joined", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream(), side = create_stream();
    void* memory = nullptr;
    RT_ANSWERS(cudaSuccess, cudaMalloc, &memory, 4);
    for (const bool dropped : {false, true}) {
        RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, cudaStreamCaptureModeRelaxed);
        RT_ANSWERS(cudaSuccess, cudaMemsetAsync, memory, 1, 4, stream);
        const cudaGraphNode_t first = position(stream);
        wait_for(side, stream);
        RT_ANSWERS(cudaSuccess, cudaMemsetAsync, memory, 2, 4, side);
        cudaGraphNode_t both[] = {first, position(side)};
        if (dropped) {
            RT_ANSWERS(cudaSuccess, cudaStreamUpdateCaptureDependencies, stream, both, nullptr, 2,
                       cudaStreamSetCaptureDependencies);
        }
        RT_ANSWERS(cudaSuccess, cudaStreamUpdateCaptureDependencies, stream, both, nullptr, 1,
                   cudaStreamSetCaptureDependencies);
        cudaGraph_t graph = nullptr;
        RT_ANSWERS(dropped ? cudaSuccess : cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture, stream,
                   &graph);
    }
}

void expect_no_capture() {
    void* memory = nullptr;
    RT_ANSWERS(cudaSuccess, cudaMalloc, &memory, 4);
    RT_ANSWERS(cudaSuccess, cudaFree, memory);
}

SIM_TEST("capture: ends with the stream it was begun in", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream(), side = create_stream();
    RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, cudaStreamCaptureModeGlobal);
    wait_for(side, stream);
    RT_ANSWERS(cudaSuccess, cudaStreamDestroy, stream);
    expect_no_capture();
    cudaStreamCaptureStatus status{};
    RT_ANSWERS(cudaSuccess, cudaStreamIsCapturing, side, &status);
    EXPECT(status == cudaStreamCaptureStatusNone);
    RT_ANSWERS(cudaSuccess, cudaStreamSynchronize, side);
}

SIM_TEST("capture: goes on without a stream that had joined it", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream(), side = create_stream();
    RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, cudaStreamCaptureModeGlobal);
    wait_for(side, stream);
    wait_for(stream, side);
    RT_ANSWERS(cudaSuccess, cudaStreamDestroy, side);
    EXPECT(end(stream) != nullptr);
}

SIM_TEST("capture: ends with the context", {}) {
    const Gpu gpu;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    for (const bool own : {false, true}) {
        OK(cuCtxCreate, &context, nullptr, 0, gpu.device);
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        if (own) stream = CU_STREAM_PER_THREAD;
        OK(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        OK(cuCtxDestroy, context);
        OK(cuCtxSetCurrent, gpu.context);
        expect_no_capture();
    }
}

SIM_TEST("capture: to wait for any stream is unsafe", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream(), other = create_stream();
    const struct {
        cudaStreamCaptureMode mode;
        bool own, elsewhere;  // prohibited to this thread, to another
    } cases[] = {{cudaStreamCaptureModeGlobal, true, true},
                 {cudaStreamCaptureModeThreadLocal, true, false},
                 {cudaStreamCaptureModeRelaxed, false, false}};
    for (const auto& test : cases) {
        for (const bool elsewhere : {false, true}) {
            for (const cudaStream_t waited : {other, cudaStreamLegacy, cudaStreamPerThread}) {
                const bool prohibited = elsewhere ? test.elsewhere : test.own;
                RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, test.mode);
                const auto wait = [&] {
                    OK(cuCtxSetCurrent, gpu.context);
                    RT_ANSWERS(prohibited ? cudaErrorStreamCaptureUnsupported : cudaSuccess,
                               cudaStreamSynchronize, waited);
                };
                if (elsewhere) {
                    std::thread(wait).join();
                } else {
                    wait();
                }
                cudaGraph_t graph = nullptr;
                RT_ANSWERS(prohibited ? cudaErrorStreamCaptureInvalidated : cudaSuccess, cudaStreamEndCapture,
                           stream, &graph);
            }
        }
    }
}

SIM_TEST(
    "capture: to wait for all of its GPU ends it, whatever the mode and the thread; another GPU's goes on",
    {{"SIMCUDA_DEVICES", "2"}}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream();
    for (const auto mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
        for (const bool elsewhere : {false, true}) {
            for (const int waited : {0, 1}) {
                RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, mode);
                const auto wait = [&] {
                    RT_ANSWERS(cudaSuccess, cudaSetDevice, waited);
                    cudaStreamCaptureMode relaxed = cudaStreamCaptureModeRelaxed;
                    RT_ANSWERS(cudaSuccess, cudaThreadExchangeStreamCaptureMode, &relaxed);
                    RT_ANSWERS(waited == 0 ? cudaErrorStreamCaptureUnsupported : cudaSuccess,
                               cudaDeviceSynchronize);
                    RT_ANSWERS(cudaSuccess, cudaThreadExchangeStreamCaptureMode, &relaxed);
                    RT_ANSWERS(cudaSuccess, cudaSetDevice, 0);
                };
                if (elsewhere) {
                    std::thread(wait).join();
                } else {
                    wait();
                }
                cudaGraph_t graph = nullptr;
                RT_ANSWERS(waited == 0 ? cudaErrorStreamCaptureInvalidated : cudaSuccess,
                           cudaStreamEndCapture, stream, &graph);
            }
        }
    }
}

SIM_TEST("capture: null dependencies are refused", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream();
    cudaGraph_t graph = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphCreate, &graph, 0);
    RT_ANSWERS(cudaErrorInvalidValue, cudaStreamBeginCaptureToGraph, stream, graph, nullptr, nullptr, 1,
               cudaStreamCaptureModeRelaxed);
    RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, cudaStreamCaptureModeRelaxed);
    for (const unsigned flags : {cudaStreamAddCaptureDependencies, cudaStreamSetCaptureDependencies}) {
        RT_ANSWERS(cudaErrorInvalidValue, cudaStreamUpdateCaptureDependencies, stream, nullptr, nullptr, 1,
                   flags);
        RT_ANSWERS(cudaSuccess, cudaStreamUpdateCaptureDependencies, stream, nullptr, nullptr, 0, flags);
    }
    RT_ANSWERS(cudaSuccess, cudaStreamEndCapture, stream, &graph);
}

SIM_TEST("capture: a batch of copies is refused, and the capture goes on without it", {}) {
    const Gpu gpu;
    const cudaStream_t stream = create_stream(), joined = create_stream();
    CUdeviceptr from = 0, to = 0;
    OK(cuMemAlloc, &from, 1000);
    OK(cuMemAlloc, &to, 1000);
    OK(cuMemsetD8, from, 1, 1000);
    OK(cuMemsetD8, to, 2, 1000);
    std::size_t bytes = 1000, start = 0;
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    CUDA_MEMCPY3D_BATCH_OP box{};
    box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    box.src.op.ptr.ptr = from;
    box.dst.op.ptr.ptr = to;
    box.extent = {1000, 1, 1};
    box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    RT_ANSWERS(cudaSuccess, cudaStreamBeginCapture, stream, cudaStreamCaptureModeGlobal);
    wait_for(joined, stream);
    for (const cudaStream_t captured : {stream, joined}) {
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpyBatchAsync, &to, &from, &bytes, 1, &attributes,
              &start, 1, captured);
        FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpy3DBatchAsync, 1, &box, 0, captured);
    }
    OK(cuMemsetD8Async, to + 500, 3, 500, stream);
    wait_for(stream, joined);
    const cudaGraph_t graph = end(stream);
    cudaGraphExec_t exec = nullptr;
    RT_ANSWERS(cudaSuccess, cudaGraphInstantiate, &exec, graph, 0);
    RT_ANSWERS(cudaSuccess, cudaGraphLaunch, exec, stream);
    RT_ANSWERS(cudaSuccess, cudaStreamSynchronize, stream);
    std::vector<std::uint8_t> expected(1000, 2);
    std::fill(expected.begin() + 500, expected.end(), 3);
    EXPECT(read_back(to, 1000) == expected);
    // Once it is no longer captured the stream takes them.
    OK(cuMemcpyBatchAsync, &to, &from, &bytes, 1, &attributes, &start, 1, stream);
    RT_ANSWERS(cudaSuccess, cudaStreamSynchronize, stream);
    EXPECT(read_back(to, 1000) == std::vector<std::uint8_t>(1000, 1));
}

}  // namespace
