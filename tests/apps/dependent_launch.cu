// Programmatic dependent launch: layers whose kernels may begin before the one before them has ended, load
// what does not depend on it, and wait for the rest; in a stream and from a graph, over buffers beyond the
// device's memory. Every layer also overwrites what the layer before read, which must have ended by then.
// Devices before compute capability 9.0 launch them one after the other.
#include <utility>

#include "batches.h"

constexpr unsigned kThreads = 128, kLayers = 14;

// Of the two buffers of values one is read and the other written, by turns.
__global__ void layer(const unsigned* weights, const unsigned* in, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * kThreads + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
    const unsigned weight = i < n ? weights[i] : 0;
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
    // Others' values as well, so that a block that began too early reads what is not there yet.
    if (i < n) out[i] = weight + 3 * in[(i + n / 2 + 1) % n];
}

// Half of the blocks let go and go on writing, the others end; those behind it wait for all.
__global__ void fill(unsigned* out, unsigned seed, unsigned n) {
    const unsigned i = blockIdx.x * kThreads + threadIdx.x;
#if __CUDA_ARCH__ >= 900
    if (blockIdx.x % 2) cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
    if (i < n) out[i] = noise(i, seed);
}

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, unsigned n, void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = blocks_for(n, kThreads);
    config.blockDim = kThreads;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

struct Network {
    explicit Network(std::size_t values) : n(static_cast<unsigned>(values)), one(values), other(values) {
        for (unsigned l = 0; l < kLayers; ++l) {
            host.emplace_back(n);
            for (unsigned i = 0; i < n; ++i) host.back()[i] = noise(i, 100 + l);
            weights.emplace_back(host.back());
        }
    }

    void run(cudaStream_t stream, unsigned seed) const {
        launch(stream, n, fill, one.get(), seed, n);
        const unsigned* in = one.get();
        unsigned* out = other.get();
        for (const Buffer<unsigned>& weight : weights) {
            launch(stream, n, layer, static_cast<const unsigned*>(weight.get()), in, out, n);
            in = std::exchange(out, const_cast<unsigned*>(in));
        }
        static_assert(kLayers % 2 == 0, "the last one writes where the first one read");
    }

    void expect(unsigned seed, const char* what) const {
        std::vector<unsigned> in(n), out(n);
        for (unsigned i = 0; i < n; ++i) in[i] = noise(i, seed);
        for (const std::vector<unsigned>& weight : host) {
            for (unsigned i = 0; i < n; ++i) out[i] = weight[i] + 3 * in[(i + n / 2 + 1) % n];
            in.swap(out);
        }
        one.expect(in, what);
    }

    unsigned n;
    Buffer<unsigned> one, other;
    std::vector<std::vector<unsigned>> host;
    std::list<Buffer<unsigned>> weights;
};

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    const Network network(bytes / (kLayers + 2) / sizeof(unsigned));
    cudaStream_t stream = nullptr;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned seed = 0; seed < 3; ++seed) {
        network.run(stream, seed);
        CHECK(cudaStreamSynchronize(stream));
        network.expect(seed, "in a stream");
    }
    // Twice, the second time behind the first without a wait between.
    network.run(stream, 3);
    network.run(stream, 4);
    CHECK(cudaStreamSynchronize(stream));
    network.expect(4, "twice in a stream");

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch(stream, network.n, fill, network.one.get(), 5u, network.n);
    launch(stream, network.n, layer, static_cast<const unsigned*>(network.weights.front().get()),
           static_cast<const unsigned*>(network.one.get()), network.other.get(), network.n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 2; ++round) {
        CHECK(cudaMemsetAsync(network.other.get(), 0, network.n * sizeof(unsigned), stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        std::vector<unsigned> expected(network.n);
        for (unsigned i = 0; i < network.n; ++i)
            expected[i] = network.host.front()[i] + 3 * noise((i + network.n / 2 + 1) % network.n, 5);
        network.other.expect(expected, "from a graph");
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    return succeed();
}
