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

}  // namespace
