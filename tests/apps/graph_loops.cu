// Graphs that loop and branch over buffers of the program's, more of them than any one graph uses. What the
// loops are decided by lies in such buffers too.
#include "check.h"

constexpr unsigned kParts = 8;  // graphs, each over its share of the memory
constexpr unsigned kLaunches = 3;

struct State {
    unsigned left, done;
};

// Whether there is another round, and whether this one is odd.
__global__ void begin_round(cudaGraphConditionalHandle odd, State* state) {
    cudaGraphSetConditional(odd, state->done % 2);
}

__global__ void end_round(cudaGraphConditionalHandle again, State* state) {
    ++state->done;
    cudaGraphSetConditional(again, --state->left != 0);
}

__global__ void mix(unsigned* to, const unsigned* from, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = to[i] * 3 + from[i];
}

__global__ void flip(unsigned* values, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = ~values[i];
}

struct Part {
    unsigned *from, *to;
    State* state;
    unsigned n;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
};

cudaGraphNode_t add_kernel(cudaGraph_t graph, cudaGraphNode_t after, void* function, unsigned threads,
                           void** arguments) {
    cudaKernelNodeParams parameters = {};
    parameters.func = function;
    parameters.gridDim = dim3(blocks_for(threads));
    parameters.blockDim = dim3(threads == 1 ? 1 : 256);
    parameters.kernelParams = arguments;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddKernelNode(&node, graph, &after, after ? 1 : 0, &parameters));
    return node;
}

cudaGraphNode_t add_conditional(cudaGraph_t graph, cudaGraphNode_t after, cudaGraphConditionalHandle handle,
                                cudaGraphConditionalNodeType type, cudaGraph_t* body) {
    cudaGraphNodeParams parameters = {};
    parameters.type = cudaGraphNodeTypeConditional;
    parameters.conditional.handle = handle;
    parameters.conditional.type = type;
    parameters.conditional.size = 1;
    cudaGraphNode_t node;
    CHECK(cudaGraphAddNode(&node, graph, &after, nullptr, after ? 1 : 0, &parameters));
    *body = parameters.conditional.phGraph_out[0];
    return node;
}

void make(Part& part) {
    CHECK(cudaGraphCreate(&part.graph, 0));
    cudaGraphConditionalHandle again, odd;
    CHECK(cudaGraphConditionalHandleCreate(&again, part.graph, 1, cudaGraphCondAssignDefault));
    CHECK(cudaGraphConditionalHandleCreate(&odd, part.graph, 0, cudaGraphCondAssignDefault));
    cudaGraph_t round, flipped;
    add_conditional(part.graph, nullptr, again, cudaGraphCondTypeWhile, &round);
    void* begin[] = {&odd, &part.state};
    void* mixed[] = {&part.to, &part.from, &part.n};
    void* flips[] = {&part.to, &part.n};
    void* end[] = {&again, &part.state};
    cudaGraphNode_t node = add_kernel(round, nullptr, reinterpret_cast<void*>(begin_round), 1, begin);
    node = add_kernel(round, node, reinterpret_cast<void*>(mix), part.n, mixed);
    node = add_conditional(round, node, odd, cudaGraphCondTypeIf, &flipped);
    add_kernel(flipped, nullptr, reinterpret_cast<void*>(flip), part.n, flips);
    add_kernel(round, node, reinterpret_cast<void*>(end_round), 1, end);
    CHECK(cudaGraphInstantiate(&part.exec, part.graph, 0));
}

unsigned rounds_of(unsigned part, unsigned launch) {
    return 1 + (part + launch) % 4;
}

void verify(const Part& part, unsigned number) {
    std::vector<unsigned> out(part.n);
    CHECK(cudaMemcpy(out.data(), part.to, part.n * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < part.n; ++i) {
        unsigned expected = 0;
        for (unsigned launch = 0; launch < kLaunches; ++launch) {
            for (unsigned done = 0; done < rounds_of(number, launch); ++done) {
                expected = expected * 3 + noise(i, number);
                if (done % 2) expected = ~expected;
            }
        }
        if (out[i] != expected) FAIL("part %u, element %u: %u, not %u", number, i, out[i], expected);
    }
    State state;
    CHECK(cudaMemcpy(&state, part.state, sizeof state, cudaMemcpyDeviceToHost));
    CHECK_EQUAL(0u, state.left);
    CHECK_EQUAL(rounds_of(number, kLaunches - 1), state.done);
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 8) / kParts / 3;
    cudaStream_t streams[2];
    for (cudaStream_t& stream : streams) CHECK(cudaStreamCreate(&stream));
    Part parts[kParts];
    for (unsigned p = 0; p < kParts; ++p) {
        Part& part = parts[p];
        part.n = static_cast<unsigned>(bytes / sizeof(unsigned));
        CHECK(cudaMalloc(&part.from, bytes));
        CHECK(cudaMalloc(&part.to, bytes));
        CHECK(cudaMalloc(&part.state, bytes));
        std::vector<unsigned> in(part.n);
        for (unsigned i = 0; i < part.n; ++i) in[i] = noise(i, p);
        CHECK(cudaMemcpy(part.from, in.data(), part.n * sizeof(unsigned), cudaMemcpyHostToDevice));
        CHECK(cudaMemset(part.to, 0, bytes));
        make(part);
    }
    CHECK(cudaDeviceSynchronize());
    for (unsigned launch = 0; launch < kLaunches; ++launch) {
        for (unsigned p = 0; p < kParts; ++p) {
            const State start = {rounds_of(p, launch), 0};
            const cudaStream_t stream = streams[p % 2];
            CHECK(cudaMemcpyAsync(parts[p].state, &start, sizeof start, cudaMemcpyHostToDevice, stream));
            CHECK(cudaGraphLaunch(parts[p].exec, stream));
        }
    }
    CHECK(cudaDeviceSynchronize());
    for (unsigned p = 0; p < kParts; ++p) {
        verify(parts[p], p);
        CHECK(cudaGraphExecDestroy(parts[p].exec));
        CHECK(cudaGraphDestroy(parts[p].graph));
        CHECK(cudaFree(parts[p].from));
        CHECK(cudaFree(parts[p].to));
        CHECK(cudaFree(parts[p].state));
    }
    return succeed();
}
