#include "trainer.h"

#include <cmath>

namespace demo {

namespace {

constexpr std::size_t kIds = static_cast<std::size_t>(Model::kBatch) * kContext;
constexpr double kTemperature = 0.5;  // below 1 the likely characters get likelier

template <typename T>
void allocate_pinned(T*& host, std::size_t count) {
    check(cudaMallocHost(reinterpret_cast<void**>(&host), count * sizeof(T)), "cudaMallocHost");
}

// Draws from the distribution, sharpened. `random` is a random word.
int draw(const std::vector<float>& probabilities, int alphabet, std::uint64_t random) {
    std::vector<double> weights;
    double total = 0;
    for (int c = 0; c < alphabet; ++c) {
        weights.push_back(
            std::pow(static_cast<double>(probabilities[static_cast<std::size_t>(c)]), 1 / kTemperature));
        total += weights.back();
    }
    double left = static_cast<double>(random >> 11) / 9007199254740992.0 * total;
    for (int c = 0; c < alphabet; ++c) {
        left -= weights[static_cast<std::size_t>(c)];
        if (left < 0) return c;
    }
    return alphabet - 1;
}

}  // namespace

Trainer::Slot::Slot()
    : ids("the n-grams of a batch", kIds),
      targets("the targets of a batch", Model::kBatch),
      loss("a loss", 1) {
    allocate_pinned(host_ids, kIds);
    allocate_pinned(host_targets, Model::kBatch);
    allocate_pinned(host_loss, 1);
    check(cudaEventCreateWithFlags(&uploaded, cudaEventDisableTiming), "cudaEventCreate");
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreate");
}

Trainer::Slot::~Slot() {
    cudaEventDestroy(done);
    cudaEventDestroy(uploaded);
    cudaFreeHost(host_loss);
    cudaFreeHost(host_targets);
    cudaFreeHost(host_ids);
}

Trainer::Trainer(const Corpus& corpus, Model& model) : corpus_(corpus), model_(model) {
    check(cudaStreamCreateWithFlags(&upload_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Trainer::~Trainer() {
    cudaStreamDestroy(upload_);
}

void Trainer::enqueue(Slot& slot, int step) {
    corpus_.batch(static_cast<std::uint32_t>(step), Model::kBatch, model_.shape().table_rows, slot.host_ids,
                  slot.host_targets);
    check(cudaMemcpyAsync(slot.ids.data(), slot.host_ids, slot.ids.bytes(), cudaMemcpyHostToDevice, upload_),
          "upload of a batch");
    check(cudaMemcpyAsync(slot.targets.data(), slot.host_targets, slot.targets.bytes(),
                          cudaMemcpyHostToDevice, upload_),
          "upload of a batch");
    check(cudaEventRecord(slot.uploaded, upload_), "cudaEventRecord");
    check(cudaStreamWaitEvent(nullptr, slot.uploaded, 0), "cudaStreamWaitEvent");
    model_.train(slot.ids.data(), slot.targets.data(), slot.loss.data(), step);
    check(cudaMemcpyAsync(slot.host_loss, slot.loss.data(), sizeof(float), cudaMemcpyDeviceToHost, nullptr),
          "download of a loss");
    check(cudaEventRecord(slot.done, nullptr), "cudaEventRecord");
}

float Trainer::finish(Slot& slot) {
    check(cudaEventSynchronize(slot.done), "a training step");
    return *slot.host_loss;
}

std::vector<float> Trainer::train(int steps, const std::function<void(int, float)>& progress) {
    std::vector<float> losses;
    const auto collect = [&](int step) {
        losses.push_back(finish(slots_[step % kSlots]));
        progress(step, losses.back());
    };
    for (int step = 1; step <= steps; ++step) {
        if (step > kSlots) collect(step - kSlots);
        enqueue(slots_[step % kSlots], step);
    }
    for (int step = std::max(1, steps - kSlots + 1); step <= steps; ++step) collect(step);
    return losses;
}

std::string Trainer::sample(const std::string& start, std::size_t longest) {
    // A new line, far enough from its start for the longest n-gram.
    std::vector<std::uint8_t> symbols = corpus_.encode(std::string(kContext, '\n') + start);
    std::vector<std::uint32_t> ids(Model::kPredictions * kContext);
    std::vector<float> probabilities(static_cast<std::size_t>(model_.output_columns()));
    std::string line = start;
    while (line.size() < longest) {
        corpus_.ngram_rows(symbols, symbols.size(), model_.shape().table_rows, ids.data());
        const DeviceBuffer<std::uint32_t>& device_ids = slots_[0].ids;
        check(cudaMemcpy(device_ids.data(), ids.data(), ids.size() * sizeof(ids[0]), cudaMemcpyHostToDevice),
              "upload of a context");
        const float* device = model_.predict(device_ids.data());
        check(cudaMemcpy(probabilities.data(), device, probabilities.size() * sizeof(float),
                         cudaMemcpyDeviceToHost),
              "download of the probabilities");
        const int symbol = draw(probabilities, corpus_.alphabet(), random_word(symbols.size()));
        if (corpus_.character(symbol) == '\n') break;
        line += corpus_.character(symbol);
        symbols.push_back(static_cast<std::uint8_t>(symbol));
    }
    return line;
}

}  // namespace demo
