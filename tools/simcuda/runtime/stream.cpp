// Streams and events made with the default flags.
#include "tools/simcuda/runtime/call.h"

using namespace simcuda::runtime;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return run([&](const Driver& cu) { return cu.cuStreamCreate(stream, CU_STREAM_DEFAULT); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return run([&](const Driver& cu) { return cu.cuEventCreate(event, CU_EVENT_DEFAULT); });
}
