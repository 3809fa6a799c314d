// Training that is heavy on weights, cyclic inference, training that is heavy on activations, made anew in
// each step and in stream order, and launches without a pattern: the launches of such programs, over buffers
// of their sizes. shapes training|inference|activations|[pooled-|graph-]tensors|patternless LAYER_MIB
// LAUNCHES STEPS [SEED]: a layer's weights (of `activations` its outputs) are LAYER_MIB MiB, its kernel is
// LAUNCHES launches long (each as long as the simulated GPU makes it). Prints milliseconds a step, by the
// GPU's clock, the mean of the second half (of `patternless` of all but the first), or, with 0 steps, the MiB
// of all buffers that there are at once.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "tests/apps/check.h"
#include "tests/bench/somewhere.cuh"

namespace {

__global__ void use(float* written, float* also, float* third, const float* a, const float* b,
                    const float* c) {
    if (somewhere() != kNone) return;
    const auto at = static_cast<unsigned>(clock());
    written[at] = also[at] = third[at] = a[at] + b[at] + c[at];
}

__global__ void pass(float* written, const float* read, unsigned count) {
    const unsigned threads = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads)
        written[i] = read[i] + 1;
}

struct Program {
    static constexpr bool kSteady = true;  // each step does the same
    std::size_t bytes = 0;
    int launches = 1;

    float* buffer(std::size_t size) {
        void* address = nullptr;
        bytes += size;
        CHECK(cudaMalloc(&address, size));
        return static_cast<float*>(address);
    }
    std::vector<float*> buffers(int count, std::size_t size) {
        std::vector<float*> all(count);
        for (float*& each : all) each = buffer(size);
        return all;
    }
    // A kernel `lengths` as long as a layer's, at least one launch.
    void kernel(double lengths, float* w0, float* w1, float* w2, const float* a, const float* b,
                const float* c) const {
        const int count = std::max(1, static_cast<int>(lengths * launches));
        for (int i = 0; i < count; ++i) use<<<1, 1>>>(w0, w1, w2, a, b, c);
        CHECK_LAUNCH();
    }
};

// Forward, backward, Adam. All buffers are there from the start, as a framework's allocator keeps them.
struct Training : Program {
    static constexpr int kLayers = 8;
    std::vector<float*> weights, first, second, grads, outputs, hidden, errors;

    explicit Training(std::size_t layer) {
        for (auto* each : {&weights, &first, &second, &grads}) *each = buffers(kLayers, layer);
        outputs = buffers(kLayers + 1, layer / 4);
        hidden = buffers(kLayers, layer / 4);
        errors = buffers(2, layer / 4);
    }
    void step() const {
        for (int i = 0; i < kLayers; ++i) {
            kernel(1, hidden[i], hidden[i], hidden[i], outputs[i], weights[i], weights[i]);
            kernel(1, outputs[i + 1], outputs[i + 1], outputs[i + 1], hidden[i], weights[i], weights[i]);
        }
        for (int i = kLayers - 1; i >= 0; --i) {
            const float* error = errors[i % 2];
            float* below = errors[1 - i % 2];
            kernel(2, below, below, below, error, hidden[i], weights[i]);
            kernel(2, grads[i], grads[i], grads[i], error, hidden[i], outputs[i]);
        }
        for (int i = 0; i < kLayers; ++i)
            kernel(0, weights[i], first[i], second[i], grads[i], grads[i], grads[i]);
    }
};

// The same weights in the same order, again and again.
struct Inference : Program {
    static constexpr int kLayers = 16;
    std::vector<float*> weights;
    float* state;

    explicit Inference(std::size_t layer) : weights(buffers(kLayers, layer)), state(buffer(1 << 16)) {}
    void step() const {
        for (const float* layer : weights) kernel(1, state, state, state, layer, layer, layer);
    }
};

// Forward and backward through layers whose outputs are allocated when they are made and freed when they have
// been used; Adam's state is there from the start.
struct Activations : Program {
    static constexpr int kLayers = 12;
    const std::size_t size;
    std::vector<float*> weights, first, second;

    explicit Activations(std::size_t layer) : size(layer) {
        for (auto* each : {&weights, &first, &second}) *each = buffers(kLayers, layer / 4);
        // As the way back begins: two of each layer, the input, two errors, and the gradient of one.
        bytes += (2 * kLayers + 3) * layer + layer / 4;
    }
    static float* made(std::size_t of) {
        void* address = nullptr;
        CHECK(cudaMallocAsync(&address, of, nullptr));
        return static_cast<float*>(address);
    }
    static void gone(float* buffer) { CHECK(cudaFreeAsync(buffer, nullptr)); }

    void step() const {
        std::vector<float*> outputs{made(size)}, hidden;
        use<<<1, 1>>>(outputs[0], outputs[0], outputs[0], outputs[0], outputs[0], outputs[0]);
        for (int i = 0; i < kLayers; ++i) {
            hidden.push_back(made(size));
            kernel(0.5, hidden[i], hidden[i], hidden[i], outputs[i], weights[i], weights[i]);
            outputs.push_back(made(size));
            float* output = outputs[i + 1];
            kernel(0.5, output, output, output, hidden[i], weights[i], weights[i]);
        }
        float* error = made(size);
        std::vector<float*> gradients(kLayers);
        for (int i = kLayers - 1; i >= 0; --i) {
            float* below = made(size);
            gradients[i] = made(size / 4);
            kernel(1, below, below, below, error, hidden[i], weights[i]);
            kernel(1, gradients[i], gradients[i], gradients[i], error, hidden[i], outputs[i]);
            for (float* each : {error, outputs[i + 1], hidden[i]}) gone(each);
            error = below;
        }
        gone(error);
        gone(outputs[0]);
        for (int i = 0; i < kLayers; ++i)
            kernel(0, weights[i], first[i], second[i], gradients[i], gradients[i], gradients[i]);
        for (float* each : gradients) gone(each);
    }
};

// Two of many buffers in each launch, by chance.
struct Patternless : Program {
    static constexpr bool kSteady = false;
    static constexpr int kBuffers = 24, kLaunches = 48;
    std::vector<float*> all;
    std::mt19937_64 random;

    explicit Patternless(std::size_t layer) : all(buffers(kBuffers, layer)) {}
    void step() {
        for (int i = 0; i < kLaunches; ++i) {
            float* written = all[random() % kBuffers];
            const float* read = all[random() % kBuffers];
            kernel(1, written, written, written, read, read, read);
        }
    }
};

// Forward and backward through 200 tensors, each written from the one beside it; every byte is touched.
// Pooled, they lie in one allocation.
struct Tensors : Program {
    static constexpr int kTensors = 200;
    std::vector<float*> all;
    unsigned count;
    cudaStream_t stream = nullptr;

    Tensors(std::size_t size, bool pooled) : count(static_cast<unsigned>(size / sizeof(float))) {
        if (!pooled) {
            all = buffers(kTensors, size);
            return;
        }
        float* const pool = buffer(kTensors * size);
        for (int i = 0; i < kTensors; ++i) all.push_back(pool + i * std::size_t{count});
    }
    void step() const {
        for (int i = 1; i < kTensors; ++i) pass<<<4, 256, 0, stream>>>(all[i], all[i - 1], count);
        for (int i = kTensors - 1; i > 0; --i) pass<<<4, 256, 0, stream>>>(all[i - 1], all[i], count);
        CHECK_LAUNCH();
    }
};

// The same as one graph.
struct GraphedTensors : Tensors {
    cudaGraphExec_t exec;

    explicit GraphedTensors(std::size_t size) : Tensors(size, false) {
        cudaGraph_t graph;
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        Tensors::step();
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
    }
    void step() const { CHECK(cudaGraphLaunch(exec, stream)); }
};

template <typename Shape>
int run(Shape shape, int launches, int steps) {
    shape.launches = launches;
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int step = 0; step < steps; ++step) {
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventRecord(begin, nullptr));
        shape.step();
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaEventRecord(end, nullptr));
        CHECK(cudaEventSynchronize(end));
        float time = 0;
        CHECK(cudaEventElapsedTime(&time, begin, end));
        times.push_back(time);
    }
    if (steps == 0) {
        std::printf("%zu\n", shape.bytes >> 20);
        return 0;
    }
    const auto from = times.begin() + (Shape::kSteady ? steps / 2 : 1);
    std::printf("%.2f\n", std::accumulate(from, times.end(), 0.0) / (times.end() - from));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5 || argc > 6 || std::atoi(argv[4]) == 1) return 2;
    const std::string_view shape = argv[1];
    const std::size_t layer = std::atoi(argv[2]) * kMiB;
    const int launches = std::atoi(argv[3]);
    const int steps = std::atoi(argv[4]);
    if (shape == "training") return run(Training(layer), launches, steps);
    if (shape == "inference") return run(Inference(layer), launches, steps);
    if (shape == "activations") return run(Activations(layer), launches, steps);
    if (shape == "tensors" || shape == "pooled-tensors")
        return run(Tensors(layer, shape != "tensors"), launches, steps);
    if (shape == "graph-tensors") return run(GraphedTensors(layer), launches, steps);
    if (shape != "patternless") return 2;
    Patternless patternless(layer);
    patternless.random.seed(argc > 5 ? std::atoi(argv[5]) : 1);
    return run(std::move(patternless), launches, steps);
}
