// Runs the model: uploads batches on a stream of their own while the step before computes, and samples text.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "corpus.h"
#include "model.h"

namespace demo {

class Trainer {
  public:
    // Keeps references to both.
    Trainer(const Corpus& corpus, Model& model);
    ~Trainer();
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    // Trains and returns each step's loss in nats a character. `progress(step, loss)` is called for each step
    // in turn, once its loss is known. Throws CudaError.
    std::vector<float> train(int steps, const std::function<void(int step, float loss)>& progress);

    // Continues `start` to the end of the line, `longest` characters at most; seeded, so the same model
    // always writes the same line. Throws CudaError.
    std::string sample(const std::string& start, std::size_t longest);

  private:
    // What one step in flight needs. Host memory is pinned, so that copies run beside the program.
    struct Slot {
        Slot();
        ~Slot();

        DeviceBuffer<std::uint32_t> ids, targets;
        DeviceBuffer<float> loss;
        std::uint32_t* host_ids = nullptr;
        std::uint32_t* host_targets = nullptr;
        float* host_loss = nullptr;
        cudaEvent_t uploaded = nullptr, done = nullptr;
    };
    static constexpr int kSlots = 2;

    void enqueue(Slot& slot, int step);
    float finish(Slot& slot);

    const Corpus& corpus_;
    Model& model_;
    cudaStream_t upload_ = nullptr;
    Slot slots_[kSlots];
};

}  // namespace demo
