// Graphs: captured from streams and built by hand, launched many times, updated between launches, with
// kernels, copies, fills, host functions, child graphs and events; and what capture forbids.
#include <thread>

#include "check.h"

__device__ unsigned bias = 3;

__global__ void scale(unsigned* values, unsigned n, unsigned by) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= by;
}

__global__ void add(unsigned* to, const unsigned* from, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += from[i] + bias;
}

struct Buffers {
    unsigned *a, *b, *in, *out;  // device, device, pinned, pinned
    unsigned n;
    std::size_t bytes;
};

void count(void* data) {
    ++*static_cast<unsigned*>(data);
}

void verify(const Buffers& buffers, unsigned (*expected)(unsigned value), const char* what) {
    for (unsigned i = 0; i < buffers.n; ++i) {
        unsigned wanted = expected(buffers.in[i]);
        if (buffers.out[i] != wanted) FAIL("%s, element %u: %u, not %u", what, i, buffers.out[i], wanted);
    }
}

// A fork and join over two streams; run several times.
void captured(const Buffers& buffers) {
    cudaStream_t stream, side;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    cudaEvent_t fork, join;
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    unsigned calls = 0;

    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaMemcpyAsync(buffers.a, buffers.in, buffers.bytes, cudaMemcpyHostToDevice, stream));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    CHECK(cudaMemsetAsync(buffers.b, 0, buffers.bytes, side));
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(side, &status));
    CHECK_EQUAL(static_cast<int>(cudaStreamCaptureStatusActive), static_cast<int>(status));
    scale<<<blocks_for(buffers.n), 256, 0, stream>>>(buffers.a, buffers.n, 5);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    add<<<blocks_for(buffers.n), 256, 0, stream>>>(buffers.b, buffers.a, buffers.n);
    CHECK_LAUNCH();
    CHECK(cudaLaunchHostFunc(stream, count, &calls));
    CHECK(cudaMemcpyAsync(buffers.out, buffers.b, buffers.bytes, cudaMemcpyDeviceToHost, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    std::size_t nodes = 0, edges = 0;
    CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
    CHECK_EQUAL(std::size_t{6}, nodes);
    CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    CHECK_EQUAL(std::size_t{6}, edges);

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream));
    const unsigned launches = 5;
    for (unsigned i = 0; i < launches; ++i) CHECK(cudaGraphLaunch(exec, i % 2 == 0 ? stream : side));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamSynchronize(side));
    CHECK_EQUAL(launches, calls);
    verify(
        buffers, [](unsigned value) { return value * 5 + 3; }, "captured graph");

    // Another factor, by the parameters of the kernel node.
    std::vector<cudaGraphNode_t> all(nodes);
    CHECK(cudaGraphGetNodes(graph, all.data(), &nodes));
    for (cudaGraphNode_t node : all) {
        cudaGraphNodeType type;
        CHECK(cudaGraphNodeGetType(node, &type));
        if (type != cudaGraphNodeTypeKernel) continue;
        cudaKernelNodeParams parameters;
        CHECK(cudaGraphKernelNodeGetParams(node, &parameters));
        if (parameters.func != reinterpret_cast<void*>(scale)) continue;
        CHECK_EQUAL(5u, *static_cast<unsigned*>(parameters.kernelParams[2]));
        unsigned* values = buffers.a;
        unsigned n = buffers.n, by = 9;
        void* changed[] = {&values, &n, &by};
        parameters.kernelParams = changed;
        CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &parameters));
    }
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    verify(
        buffers, [](unsigned value) { return value * 9 + 3; }, "changed kernel node");

    // The whole graph again with another factor, for an update.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaMemcpyAsync(buffers.a, buffers.in, buffers.bytes, cudaMemcpyHostToDevice, stream));
    scale<<<blocks_for(buffers.n), 256, 0, stream>>>(buffers.a, buffers.n, 2);
    CHECK(cudaMemcpyAsync(buffers.out, buffers.a, buffers.bytes, cudaMemcpyDeviceToHost, stream));
    cudaGraph_t shorter;
    CHECK(cudaStreamEndCapture(stream, &shorter));
    cudaGraphExecUpdateResultInfo info;
    CHECK_ERROR(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, shorter, &info));
    CHECK_EQUAL(static_cast<int>(cudaGraphExecUpdateErrorTopologyChanged), static_cast<int>(info.result));
    cudaGraphExec_t short_exec;
    CHECK(cudaGraphInstantiateWithFlags(&short_exec, shorter, 0));
    CHECK(cudaGraphExecUpdate(short_exec, shorter, &info));
    CHECK(cudaGraphLaunch(short_exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    verify(
        buffers, [](unsigned value) { return value * 2; }, "updated graph");

    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(short_exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(shorter));
    for (cudaEvent_t event : {fork, join}) CHECK(cudaEventDestroy(event));
    for (cudaStream_t s : {stream, side}) CHECK(cudaStreamDestroy(s));
}

// The same work with nodes, one part in a child graph, events around it.
void by_hand(const Buffers& buffers) {
    cudaGraph_t graph, child;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    cudaEvent_t done;
    CHECK(cudaEventCreate(&done));

    unsigned* a = buffers.a;
    unsigned n = buffers.n, by = 4;
    void* arguments[] = {&a, &n, &by};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void*>(scale);
    kernel.gridDim = dim3(blocks_for(n));
    kernel.blockDim = dim3(256);
    kernel.kernelParams = arguments;
    cudaGraphNode_t first, second;
    CHECK(cudaGraphAddKernelNode(&first, child, nullptr, 0, &kernel));
    CHECK(cudaGraphAddKernelNode(&second, child, &first, 1, &kernel));

    cudaGraphNode_t upload, nested, fill, sum, symbol, download, record, empty;
    CHECK(cudaGraphAddMemcpyNode1D(&upload, graph, nullptr, 0, a, buffers.in, buffers.bytes,
                                   cudaMemcpyHostToDevice));
    CHECK(cudaGraphAddChildGraphNode(&nested, graph, &upload, 1, child));
    cudaMemsetParams memset = {};
    memset.dst = buffers.b;
    memset.value = 7;
    memset.elementSize = 4;
    memset.width = n;
    memset.height = 1;
    CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &memset));
    unsigned new_bias = 11;
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&symbol, graph, nullptr, 0, bias, &new_bias, sizeof(new_bias), 0,
                                         cudaMemcpyHostToDevice));
    const cudaGraphNode_t before[] = {nested, fill, symbol};
    const unsigned* from = buffers.a;
    void* sum_arguments[] = {const_cast<unsigned**>(&buffers.b), &from, &n};
    kernel.func = reinterpret_cast<void*>(add);
    kernel.kernelParams = sum_arguments;
    CHECK(cudaGraphAddKernelNode(&sum, graph, before, 3, &kernel));
    CHECK(cudaGraphAddEmptyNode(&empty, graph, &sum, 1));
    CHECK(cudaGraphAddMemcpyNode1D(&download, graph, &empty, 1, buffers.out, buffers.b, buffers.bytes,
                                   cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddEventRecordNode(&record, graph, &download, 1, done));

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, cudaStreamPerThread));
    CHECK(cudaEventSynchronize(done));
    verify(
        buffers, [](unsigned value) { return value * 16 + 7 + 11; }, "graph by hand");

    // Leave out the fill: b keeps what the last launch left.
    CHECK(cudaGraphNodeSetEnabled(exec, fill, 0));
    CHECK(cudaGraphLaunch(exec, cudaStreamPerThread));
    CHECK(cudaEventSynchronize(done));
    verify(
        buffers, [](unsigned value) { return 2 * (value * 16 + 11) + 7; }, "node switched off");

    // A clone goes on without its original.
    cudaGraph_t clone;
    CHECK(cudaGraphClone(&clone, graph));
    cudaGraphNode_t twin;
    CHECK(cudaGraphNodeFindInClone(&twin, sum, clone));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(child));
    cudaGraphExec_t cloned;
    CHECK(cudaGraphInstantiate(&cloned, clone, 0));
    CHECK(cudaGraphLaunch(cloned, nullptr));
    CHECK(cudaEventSynchronize(done));
    verify(
        buffers, [](unsigned value) { return value * 16 + 7 + 11; }, "clone");
    CHECK(cudaGraphDestroy(clone));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(cloned));
    CHECK(cudaEventDestroy(done));
}

void must_be_invalidated(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    CHECK_ERROR(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &graph));
    if (graph != nullptr) FAIL("an invalidated capture left a graph");
}

void forbidden() {
    cudaStream_t stream, other;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    cudaEvent_t event;
    CHECK(cudaEventCreate(&event));
    void* memory = nullptr;
    cudaGraph_t graph;

    // An unsafe call of this thread, and of another one.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_ERROR(cudaErrorStreamCaptureUnsupported, cudaMalloc(&memory, 256));
    must_be_invalidated(stream);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::thread([&] { CHECK_ERROR(cudaErrorStreamCaptureUnsupported, cudaMalloc(&memory, 256)); }).join();
    must_be_invalidated(stream);

    // Which may make it in a thread-local capture, or when it has said that it knows what it does.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    std::thread([&] {
        CHECK(cudaMalloc(&memory, 256));
        CHECK(cudaFree(memory));
    }).join();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    std::thread([&] {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
        CHECK_EQUAL(static_cast<int>(cudaStreamCaptureModeGlobal), static_cast<int>(mode));
        CHECK(cudaMalloc(&memory, 256));
        CHECK(cudaFree(memory));
        CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
    }).join();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));

    // The legacy stream, while a stream captures that it would have to wait for.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_ERROR(cudaErrorStreamCaptureImplicit, cudaStreamSynchronize(nullptr));
    must_be_invalidated(stream);
    CHECK_ERROR(cudaErrorStreamCaptureUnsupported,
                cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));

    // Waiting for the capturing stream, or for an event recorded in it.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_ERROR(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
    must_be_invalidated(stream);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    CHECK_ERROR(cudaErrorCapturedEvent, cudaEventSynchronize(event));
    must_be_invalidated(stream);

    // Work left unjoined, and an event from outside.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    scale<<<1, 1, 0, other>>>(nullptr, 0, 0);
    CHECK_LAUNCH();
    CHECK_ERROR(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream, &graph));
    CHECK(cudaEventRecord(event, other));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_ERROR(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(stream, event, 0));
    must_be_invalidated(stream);

    // Ended from the wrong stream.
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaEventRecord(event, stream));
    CHECK(cudaStreamWaitEvent(other, event, 0));
    CHECK_ERROR(cudaErrorStreamCaptureUnmatched, cudaStreamEndCapture(other, &graph));
    must_be_invalidated(stream);

    CHECK(cudaEventDestroy(event));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaStreamDestroy(other));
}

// Copies to and from variables that copy nothing: no node is made of one, and none becomes one.
void of_nothing() {
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    static unsigned here;
    const cudaMemcpyKind in = cudaMemcpyHostToDevice, out = cudaMemcpyDeviceToHost;
    cudaGraphNode_t to, from, none;
    CHECK(cudaGraphAddMemcpyNodeToSymbol(&to, graph, nullptr, 0, bias, &here, sizeof(here), 0, in));
    CHECK(cudaGraphAddMemcpyNodeFromSymbol(&from, graph, &to, 1, &here, bias, sizeof(here), 0, out));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const cudaError_t refused = cudaErrorInvalidValue;
    CHECK_ERROR(refused, cudaGraphAddMemcpyNodeToSymbol(&none, graph, nullptr, 0, bias, &here, 0, 0, in));
    CHECK_ERROR(refused, cudaGraphAddMemcpyNodeFromSymbol(&none, graph, nullptr, 0, &here, bias, 0, 0, out));
    CHECK_ERROR(refused, cudaGraphMemcpyNodeSetParamsToSymbol(to, bias, &here, 0, 0, in));
    CHECK_ERROR(refused, cudaGraphMemcpyNodeSetParamsFromSymbol(from, &here, bias, 0, 0, out));
    CHECK_ERROR(refused, cudaGraphExecMemcpyNodeSetParamsToSymbol(exec, to, bias, &here, 0, 0, in));
    CHECK_ERROR(refused, cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec, from, &here, bias, 0, 0, out));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

int main(int argc, char** argv) {
    const std::size_t part = kMiB;
    const std::size_t sets = std::max<std::size_t>(bytes_to_use(argc, argv, 4) / (2 * part), 1);
    std::vector<Buffers> all(sets);
    for (std::size_t s = 0; s < sets; ++s) {
        Buffers& buffers = all[s];
        buffers.n = part / sizeof(unsigned);
        buffers.bytes = part;
        CHECK(cudaMalloc(&buffers.a, part));
        CHECK(cudaMalloc(&buffers.b, part));
        CHECK(cudaMallocHost(&buffers.in, part));
        CHECK(cudaMallocHost(&buffers.out, part));
        for (unsigned i = 0; i < buffers.n; ++i) buffers.in[i] = noise(s * buffers.n + i);
    }
    const unsigned three = 3;
    for (const Buffers& buffers : all) {
        CHECK(cudaMemcpyToSymbol(bias, &three, sizeof(three)));
        captured(buffers);
        by_hand(buffers);
    }
    forbidden();
    of_nothing();
    for (const Buffers& buffers : all) {
        CHECK(cudaFree(buffers.a));
        CHECK(cudaFree(buffers.b));
        CHECK(cudaFreeHost(buffers.in));
        CHECK(cudaFreeHost(buffers.out));
    }
    return succeed();
}
