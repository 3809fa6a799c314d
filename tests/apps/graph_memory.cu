// Graphs that take memory of their own while buffers fill the device, and that decide on the device what
// runs, over those buffers.
#include "batches.h"

__global__ void scale(unsigned* to, const unsigned* from, unsigned n, unsigned factor) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] * factor + 1;
}

__global__ void add(unsigned* to, const unsigned* from, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] += from[i];
}

__global__ void count_down(cudaGraphConditionalHandle handle, unsigned* left) {
    cudaGraphSetConditional(handle, --*left != 0);
}

using Values = std::vector<unsigned>;

// Through scratch memory that the graph allocates and frees, one graph for each buffer, all launched over and
// over.
void scratch(std::size_t bytes) {
    constexpr unsigned kBuffers = 16, kRounds = 3;
    const unsigned n = static_cast<unsigned>(bytes / kBuffers / sizeof(unsigned));
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::list<Buffer<unsigned>> buffers;
    std::vector<Values> host(kBuffers, Values(n));
    std::vector<cudaGraphExec_t> graphs(kBuffers);
    for (unsigned b = 0; b < kBuffers; ++b) {
        for (unsigned i = 0; i < n; ++i) host[b][i] = noise(i, b);
        buffers.emplace_back(host[b]);
        unsigned *values = buffers.back().get(), *own = nullptr;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CHECK(cudaMallocAsync(&own, n * sizeof(unsigned), stream));
        scale<<<blocks_for(n), 256, 0, stream>>>(own, values, n, 5);
        add<<<blocks_for(n), 256, 0, stream>>>(values, own, n);
        CHECK(cudaFreeAsync(own, stream));
        cudaGraph_t graph;
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&graphs[b], graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    for (unsigned round = 0; round < kRounds; ++round) {
        for (cudaGraphExec_t graph : graphs) CHECK(cudaGraphLaunch(graph, stream));
        for (Values& values : host)
            for (unsigned& value : values) value += value * 5 + 1;
    }
    CHECK(cudaStreamSynchronize(stream));
    auto values = host.begin();
    for (const Buffer<unsigned>& buffer : buffers) buffer.expect(*values++, "through scratch memory");
    for (cudaGraphExec_t graph : graphs) CHECK(cudaGraphExecDestroy(graph));
    CHECK(cudaDeviceGraphMemTrim(0));
    CHECK(cudaStreamDestroy(stream));
}

// Each of the buffers is worked on as often as a counter in device memory says.
void loops(std::size_t bytes) {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const Buffer<unsigned> left(1);
    over_batches<unsigned, unsigned>(
        bytes, "worked on in a loop", [](std::size_t i) { return noise(i); },
        [&](const unsigned* in, unsigned* out, unsigned n) {
            cudaGraph_t graph, body, captured;
            CHECK(cudaGraphCreate(&graph, 0));
            cudaGraphConditionalHandle handle;
            CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
            cudaGraphNodeParams loop = {};
            loop.type = cudaGraphNodeTypeConditional;
            loop.conditional.handle = handle;
            loop.conditional.type = cudaGraphCondTypeWhile;
            loop.conditional.size = 1;
            cudaGraphNode_t node;
            CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop));
            body = loop.conditional.phGraph_out[0];
            CHECK(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0,
                                                cudaStreamCaptureModeThreadLocal));
            add<<<blocks_for(n), 256, 0, stream>>>(out, in, n);
            count_down<<<1, 1, 0, stream>>>(handle, left.get());
            CHECK(cudaStreamEndCapture(stream, &captured));
            cudaGraphExec_t exec;
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
            const unsigned rounds = 3;
            CHECK(cudaMemset(out, 0, n * sizeof(unsigned)));
            CHECK(cudaMemcpy(left.get(), &rounds, sizeof(rounds), cudaMemcpyHostToDevice));
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaGraphLaunch(exec, stream));
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaGraphExecDestroy(exec));
            CHECK(cudaGraphDestroy(graph));
        },
        [](Values in) {
            for (unsigned& value : in) value *= 3;
            return in;
        });
    CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    scratch(bytes);
    loops(bytes);
    return succeed();
}
