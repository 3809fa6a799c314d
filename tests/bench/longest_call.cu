// The longest calls of a program that fills the GPU and goes beyond it: longest_call read|written LAYERS
// LAYER_MIB STEPS. Each of LAYERS buffers of LAYER_MIB MiB is allocated and uploaded; then a step launches a
// kernel for each, which reads it or writes it too. Prints milliseconds by the GPU's clock: the longest
// allocation, upload and launch, and the longest launch of the last two steps.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/apps/check.h"
#include "tests/bench/somewhere.cuh"

namespace {

__global__ void use(float* written, const float* read) {
    if (somewhere() != kNone) return;
    const auto at = static_cast<unsigned>(clock());
    written[at] = read[at];
}

// When calls begin and end, as a stream sees it that has nothing else to do.
class Calls {
  public:
    Calls() { CHECK(cudaStreamCreateWithFlags(&idle_, cudaStreamNonBlocking)); }

    template <typename Call>
    void time(Call call) {
        const cudaEvent_t begin = mark();
        call();
        calls_.push_back({begin, mark()});
    }
    // Milliseconds of the longest of those since the one at `first`.
    float longest(std::size_t first = 0) const {
        CHECK(cudaStreamSynchronize(idle_));
        float most = 0;
        for (std::size_t i = first; i < calls_.size(); ++i) {
            float time = 0;
            CHECK(cudaEventElapsedTime(&time, calls_[i].begin, calls_[i].end));
            most = std::max(most, time);
        }
        return most;
    }

  private:
    struct Call {
        cudaEvent_t begin, end;
    };
    cudaEvent_t mark() const {
        cudaEvent_t event;
        CHECK(cudaEventCreate(&event));
        CHECK(cudaEventRecord(event, idle_));
        return event;
    }
    cudaStream_t idle_;
    std::vector<Call> calls_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return 2;
    const bool written = std::string_view(argv[1]) == "written";
    const std::size_t layers = std::atoi(argv[2]), bytes = std::atoi(argv[3]) * kMiB,
                      steps = std::atoi(argv[4]);
    const std::vector<char> contents(bytes);
    float* state = nullptr;
    CHECK(cudaMalloc(&state, 1 << 16));
    Calls allocations, uploads, launches;
    std::vector<float*> all(layers);
    for (float*& layer : all) {
        allocations.time([&] { CHECK(cudaMalloc(&layer, bytes)); });
        uploads.time([&] { CHECK(cudaMemcpy(layer, contents.data(), bytes, cudaMemcpyHostToDevice)); });
    }
    for (std::size_t step = 0; step < steps; ++step) {
        for (float* const layer : all) launches.time([&] { use<<<1, 1>>>(written ? layer : state, layer); });
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
    }
    std::printf("%.2f %.2f %.2f %.2f\n", allocations.longest(), uploads.longest(), launches.longest(),
                launches.longest((steps - 2) * layers));
    return 0;
}
