// Training that is heavy on weights, and cyclic inference: the launches of such programs, over buffers of
// their sizes. shapes training|inference LAYER_MIB LAUNCHES STEPS: a layer's weights are LAYER_MIB MiB, its
// kernel is LAUNCHES launches long (each as long as the simulated GPU makes it). Prints milliseconds a step,
// by the GPU's clock, the least of all but the first, or, with 0 steps, the MiB of all buffers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/apps/check.h"

namespace {

__global__ void use(float* written, float* also, float* third, const float* a, const float* b,
                    const float* c) {
    if (threadIdx.x == 32) *written = *also = *third = *a + *b + *c;  // no such thread
}

struct Program {
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

template <typename Shape>
int run(std::size_t layer, int launches, int steps) {
    Shape shape(layer);
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
    std::printf("%.2f\n", *std::min_element(times.begin() + 1, times.end()));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5 || std::atoi(argv[4]) == 1) return 2;
    const std::size_t layer = std::atoi(argv[2]) * kMiB;
    const int launches = std::atoi(argv[3]);
    const int steps = std::atoi(argv[4]);
    return argv[1] == std::string_view("training") ? run<Training>(layer, launches, steps)
                                                   : run<Inference>(layer, launches, steps);
}
