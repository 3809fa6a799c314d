// Graphs that allocate, free, branch and loop.
#include <cstdint>

#include "check.h"

__global__ void fill(unsigned* values, unsigned n, unsigned value) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = value + i;
}

__global__ void add(unsigned* to, const unsigned* from, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += from[i];
}

__global__ void count_down(cudaGraphConditionalHandle handle, unsigned* left, unsigned* rounds) {
    ++*rounds;
    cudaGraphSetConditional(handle, --*left != 0);
}

__global__ void choose(cudaGraphConditionalHandle handle, const unsigned* which) {
    cudaGraphSetConditional(handle, *which);
}

__global__ void store(unsigned* to, unsigned value) {
    *to = value;
}

constexpr unsigned kThreads = 256;

cudaKernelNodeParams kernel_node(void* function, void** arguments, unsigned n = 1) {
    cudaKernelNodeParams parameters = {};
    parameters.func = function;
    parameters.gridDim = dim3((n + kThreads - 1) / kThreads);
    parameters.blockDim = dim3(n == 1 ? 1 : kThreads);
    parameters.kernelParams = arguments;
    return parameters;
}

cudaMemAllocNodeParams allocation(std::size_t bytes) {
    cudaMemAllocNodeParams parameters = {};
    parameters.poolProps.allocType = cudaMemAllocationTypePinned;
    parameters.poolProps.location.type = cudaMemLocationTypeDevice;
    parameters.bytesize = bytes;
    return parameters;
}

std::uint64_t graph_memory(cudaGraphMemAttributeType which) {
    std::uint64_t value = 0;
    CHECK(cudaDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

// Allocated, used and freed inside; launched again and again.
void temporary(unsigned n, cudaStream_t stream) {
    const std::size_t bytes = n * sizeof(unsigned);
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t alloc, filled, copied, freed;
    cudaMemAllocNodeParams wanted = allocation(bytes);
    CHECK(cudaGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &wanted));
    auto* scratch = static_cast<unsigned*>(wanted.dptr);
    unsigned start = 7;
    void* arguments[] = {&scratch, &n, &start};
    const cudaKernelNodeParams kernel = kernel_node(reinterpret_cast<void*>(fill), arguments, n);
    CHECK(cudaGraphAddKernelNode(&filled, graph, &alloc, 1, &kernel));
    std::vector<unsigned> out(n);
    CHECK(cudaGraphAddMemcpyNode1D(&copied, graph, &filled, 1, out.data(), scratch, bytes,
                                   cudaMemcpyDeviceToHost));
    CHECK(cudaGraphAddMemFreeNode(&freed, graph, &copied, 1, scratch));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphUpload(exec, stream));
    for (int round = 0; round < 3; ++round) {
        std::fill(out.begin(), out.end(), 0u);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (unsigned i = 0; i < n; ++i)
            if (out[i] != 7 + i) FAIL("round %d, element %u: %u", round, i, out[i]);
    }
    if (graph_memory(cudaGraphMemAttrUsedMemCurrent) != 0) FAIL("a graph's memory is still in use");
    if (graph_memory(cudaGraphMemAttrUsedMemHigh) < bytes) FAIL("the most memory graphs used");
    CHECK(cudaDeviceGraphMemTrim(0));

    cudaGraph_t clone;
    CHECK_ERROR(cudaErrorNotSupported, cudaGraphClone(&clone, graph));
    cudaGraphExec_t second;
    CHECK_ERROR(cudaErrorNotSupported, cudaGraphInstantiate(&second, graph, 0));
    CHECK_ERROR(cudaErrorNotSupported, cudaGraphDestroyNode(freed));
    CHECK_ERROR(cudaErrorInvalidValue, cudaGraphAddMemFreeNode(&freed, graph, nullptr, 0, scratch));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphInstantiate(&second, graph, 0));
    CHECK(cudaGraphExecDestroy(second));
    CHECK(cudaGraphDestroy(graph));
}

void count(void* data) {
    ++*static_cast<unsigned*>(data);
}

// A box copied between pitched buffers, then a host function.
void copies(cudaStream_t stream) {
    constexpr std::size_t kWidth = 300, kHeight = 40;
    unsigned char *from, *to;
    std::size_t from_pitch, to_pitch;
    CHECK(cudaMallocPitch(&from, &from_pitch, kWidth, kHeight));
    CHECK(cudaMallocPitch(&to, &to_pitch, kWidth, kHeight));
    std::vector<unsigned char> in(kWidth * kHeight), out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(noise(i));
    CHECK(cudaMemcpy2D(from, from_pitch, in.data(), kWidth, kWidth, kHeight, cudaMemcpyHostToDevice));
    CHECK(cudaMemset2D(to, to_pitch, 0, kWidth, kHeight));
    CHECK(cudaDeviceSynchronize());
    cudaMemcpy3DParms box = {};
    box.srcPtr = make_cudaPitchedPtr(from, from_pitch, kWidth, kHeight);
    box.srcPos = make_cudaPos(10, 3, 0);
    box.dstPtr = make_cudaPitchedPtr(to, to_pitch, kWidth, kHeight);
    box.dstPos = make_cudaPos(20, 5, 0);
    box.extent = make_cudaExtent(200, 30, 1);
    box.kind = cudaMemcpyDeviceToDevice;
    unsigned calls = 0;
    cudaHostNodeParams host = {count, &calls};
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t copy, called;
    CHECK(cudaGraphAddMemcpyNode(&copy, graph, nullptr, 0, &box));
    CHECK(cudaGraphAddHostNode(&called, graph, &copy, 1, &host));
    host.fn = nullptr;
    CHECK_ERROR(cudaErrorInvalidValue, cudaGraphAddHostNode(&called, graph, &copy, 1, &host));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (calls != 2) FAIL("a host function ran %u times", calls);
    CHECK(cudaMemcpy2D(out.data(), kWidth, to, to_pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
    for (std::size_t y = 0; y < kHeight; ++y) {
        for (std::size_t x = 0; x < kWidth; ++x) {
            const bool copied = x >= 20 && x < 220 && y >= 5 && y < 35;
            const unsigned char expected = copied ? in[(y - 2) * kWidth + x - 10] : 0;
            if (out[y * kWidth + x] != expected) FAIL("row %zu, column %zu: %u", y, x, out[y * kWidth + x]);
        }
    }
    box.extent.height = kHeight;  // beyond the buffer's end
    CHECK_ERROR(cudaErrorInvalidValue, cudaGraphAddMemcpyNode(&copy, graph, nullptr, 0, &box));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(from));
    CHECK(cudaFree(to));
}

// Allocated by a capture and left to the program, which frees it.
void left_over(unsigned n, cudaStream_t stream) {
    const std::size_t bytes = n * sizeof(unsigned);
    unsigned* kept = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMallocAsync(&kept, bytes, stream));
    fill<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(kept, n, 100);
    unsigned* gone = nullptr;
    CHECK(cudaMallocAsync(&gone, bytes, stream));
    fill<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(gone, n, 1000);
    add<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(kept, gone, n);
    CHECK(cudaFreeAsync(gone, stream));
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphLaunch(exec, stream));
    std::vector<unsigned> out(n);
    CHECK(cudaMemcpyAsync(out.data(), kept, bytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (unsigned i = 0; i < n; ++i)
        if (out[i] != 1100 + 2 * i) FAIL("element %u: %u", i, out[i]);
    CHECK_ERROR(cudaErrorInvalidValue, cudaGraphLaunch(exec, stream));  // not freed yet
    CHECK(cudaFreeAsync(kept, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(kept));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    for (int round = 0; round < 3; ++round) CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaFreeAsync(kept, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (graph_memory(cudaGraphMemAttrUsedMemCurrent) != 0) FAIL("memory is left after an automatic free");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

cudaGraphNode_t add_conditional(cudaGraph_t graph, const cudaGraphNode_t* after, std::size_t count,
                                cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                                unsigned size, cudaGraph_t* bodies) {
    cudaGraphNodeParams parameters = {};
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = handle;
    parameters.conditional.type = type;
    parameters.conditional.size = size;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, after, nullptr, count, &parameters));
    for (unsigned i = 0; i < size; ++i) bodies[i] = parameters.conditional.phGraph_out[i];
    return node;
}

// A loop inside of a loop: the inner one runs `inner` times for each of the outer's rounds.
void loops(cudaStream_t stream) {
    unsigned* words;  // outer left, outer rounds, inner left, inner rounds
    CHECK(cudaMalloc(&words, 4 * sizeof(unsigned)));
    cudaGraph_t graph;
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle outer, inner;
    CHECK(cudaGraphConditionalHandleCreate(&outer, graph, 1, cudaGraphCondAssignDefault));
    CHECK(cudaGraphConditionalHandleCreate(&inner, graph, 1, 0));
    cudaGraph_t body, inner_body;
    add_conditional(graph, nullptr, 0, outer, cudaGraphCondTypeWhile, 1, &body);

    unsigned* one;
    CHECK(cudaMalloc(&one, sizeof(unsigned)));
    const unsigned value = 1;
    CHECK(cudaMemcpy(one, &value, sizeof value, cudaMemcpyHostToDevice));
    cudaStream_t capturing;
    CHECK(cudaStreamCreate(&capturing));
    CHECK(cudaStreamBeginCaptureToGraph(capturing, body, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
    store<<<1, 1, 0, capturing>>>(words + 2, 4);
    // The inner condition is zero after its loop.
    choose<<<1, 1, 0, capturing>>>(inner, one);
    cudaStreamCaptureStatus status;
    cudaGraph_t seen;
    const cudaGraphNode_t* last;
    std::size_t count;
    CHECK(cudaStreamGetCaptureInfo(capturing, &status, nullptr, &seen, &last, nullptr, &count));
    if (status != cudaStreamCaptureStatusActive || seen != body || count != 1) FAIL("capture info");
    cudaGraphNode_t loop = add_conditional(body, last, count, inner, cudaGraphCondTypeWhile, 1, &inner_body);
    CHECK(
        cudaStreamUpdateCaptureDependencies(capturing, &loop, nullptr, 1, cudaStreamSetCaptureDependencies));
    count_down<<<1, 1, 0, capturing>>>(outer, words, words + 1);
    CHECK(cudaStreamEndCapture(capturing, &seen));
    if (seen != body) FAIL("a capture into a body");
    cudaGraphNode_t node;
    unsigned *left = words + 2, *rounds = words + 3;
    void* arguments[] = {&inner, &left, &rounds};
    const cudaKernelNodeParams kernel = kernel_node(reinterpret_cast<void*>(count_down), arguments);
    CHECK(cudaGraphAddKernelNode(&node, inner_body, nullptr, 0, &kernel));

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 2; ++round) {
        const unsigned start[4] = {3, 0, 0, 0};
        CHECK(cudaMemcpyAsync(words, start, sizeof start, cudaMemcpyHostToDevice, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        unsigned out[4];
        CHECK(cudaMemcpyAsync(out, words, sizeof out, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        if (out[0] != 0 || out[1] != 3 || out[2] != 0 || out[3] != 12)
            FAIL("loops: %u left, %u rounds; inside %u left, %u rounds", out[0], out[1], out[2], out[3]);
    }
    CHECK_ERROR(cudaErrorInvalidValue, cudaGraphDestroy(body));
    cudaGraph_t clone;
    CHECK_ERROR(cudaErrorNotSupported, cudaGraphClone(&clone, graph));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(capturing));
    CHECK(cudaFree(words));
    CHECK(cudaFree(one));
}

// If with else, and switch: the body that ran leaves its number.
void branches(cudaStream_t stream) {
    unsigned* words;  // which, result
    CHECK(cudaMalloc(&words, 2 * sizeof(unsigned)));
    for (const cudaGraphConditionalNodeType type : {cudaGraphCondTypeIf, cudaGraphCondTypeSwitch}) {
        const unsigned size = type == cudaGraphCondTypeIf ? 2 : 5;
        cudaGraph_t graph;
        CHECK(cudaGraphCreate(&graph, 0));
        cudaGraphConditionalHandle handle;
        CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
        cudaGraphNode_t chosen, node;
        void* arguments[] = {&handle, &words};
        const cudaKernelNodeParams chooser = kernel_node(reinterpret_cast<void*>(choose), arguments);
        CHECK(cudaGraphAddKernelNode(&chosen, graph, nullptr, 0, &chooser));
        cudaGraph_t bodies[5];
        add_conditional(graph, &chosen, 1, handle, type, size, bodies);
        for (unsigned i = 0; i < size; ++i) {
            unsigned *to = words + 1, number = 10 + i;
            void* stored[] = {&to, &number};
            const cudaKernelNodeParams kernel = kernel_node(reinterpret_cast<void*>(store), stored);
            CHECK(cudaGraphAddKernelNode(&node, bodies[i], nullptr, 0, &kernel));
        }
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (unsigned which = 0; which < 7; ++which) {
            const unsigned start[2] = {which, 99};
            CHECK(cudaMemcpyAsync(words, start, sizeof start, cudaMemcpyHostToDevice, stream));
            CHECK(cudaGraphLaunch(exec, stream));
            unsigned out[2];
            CHECK(cudaMemcpyAsync(out, words, sizeof out, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
            unsigned expected = which < size ? 10 + which : 99;
            if (type == cudaGraphCondTypeIf) expected = which != 0 ? 10 : 11;
            if (out[1] != expected) FAIL("branch %u: %u, not %u", which, out[1], expected);
        }
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
    }
    CHECK(cudaFree(words));
}

int main(int argc, char** argv) {
    const auto n = static_cast<unsigned>(
        std::max<std::size_t>(bytes_to_use(argc, argv, 3) / 3 / sizeof(unsigned), 1000));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    temporary(n, stream);
    left_over(n, stream);
    copies(stream);
    loops(stream);
    branches(stream);
    return succeed();
}
