#include "model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "corpus.h"
#include "kernels.cuh"

namespace demo {

namespace {

constexpr int kWidth = 64;  // of an embedding
constexpr int kInputs = kContext * kWidth;
constexpr int kLayers = 3;
constexpr std::size_t kBytesPerParameter = 4 * sizeof(float);  // weight, gradient, two moments
constexpr std::size_t kLayersShare = 4;  // layers and activations get a quarter of the memory

constexpr float kRate = 0.006f;
constexpr float kBeta1 = 0.9f, kBeta2 = 0.99f;
constexpr int kRateWidth = 512;  // a layer wider than this learns more slowly in proportion
constexpr float kTableScale = 0.3f;
constexpr float kOutputScale = 0.01f;  // small: the untrained model predicts the uniform distribution

constexpr unsigned kThreads = 128;

constexpr int round_up(int n, int multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

// Blocks of `threads` threads for `items` items.
unsigned blocks_for(std::size_t items, unsigned threads = kThreads) {
    return static_cast<unsigned>((items + threads - 1) / threads);
}

int padded_alphabet(int alphabet) {
    return round_up(alphabet, 16);
}

std::size_t layer_parameters(int hidden, int outputs) {
    const std::size_t h = static_cast<std::size_t>(hidden);
    return (kInputs + 1) * h + (h + 1) * h + (h + 1) * static_cast<std::size_t>(outputs);
}

std::size_t activation_floats(int hidden, int outputs) {
    return static_cast<std::size_t>(Model::kBatch) *
           static_cast<std::size_t>(2 * kInputs + 4 * hidden + outputs + 1);
}

std::size_t layer_bytes(int hidden, int outputs) {
    return layer_parameters(hidden, outputs) * kBytesPerParameter +
           activation_floats(hidden, outputs) * sizeof(float);
}

// A grid of 4 x 4 tiles over a rows x columns result. Eight threads side by side read one 128-byte line.
struct Tiles {
    Tiles(int rows, int columns)
        : block(8, 16),
          grid(blocks_for(static_cast<std::size_t>(columns / kTile), block.x),
               blocks_for(static_cast<std::size_t>(rows / kTile), block.y)) {}
    dim3 block, grid;
};

void launched(const char* kernel) {
    check(cudaGetLastError(), kernel);
}

}  // namespace

Shape Shape::for_memory(std::size_t bytes, int alphabet) {
    const int outputs = padded_alphabet(alphabet);
    // Odd multiples of 16, so that the rows of a matrix do not all fall on the same cache sets.
    int hidden = 16;
    while (layer_bytes(hidden + 32, outputs) <= bytes / kLayersShare) hidden += 32;
    const std::size_t fixed =
        layer_bytes(hidden, outputs) + static_cast<std::size_t>(alphabet) * kWidth * kBytesPerParameter;
    const std::size_t row = (kContext - 1) * kWidth * kBytesPerParameter;  // one in every hashed table
    if (bytes < fixed + row) {
        throw std::invalid_argument("a model needs at least " + std::to_string((fixed + row + 1023) / 1024) +
                                    "K");
    }
    const std::size_t rows = (bytes - fixed) / row;
    return {alphabet, hidden, static_cast<std::uint32_t>(std::min<std::size_t>(rows, UINT32_MAX))};
}

std::size_t Shape::parameters() const {
    const std::size_t rows =
        static_cast<std::size_t>(alphabet) + static_cast<std::size_t>(kContext - 1) * table_rows;
    return rows * kWidth + layer_parameters(hidden, padded_alphabet(alphabet));
}

std::size_t Shape::bytes() const {
    return parameters() * kBytesPerParameter +
           activation_floats(hidden, padded_alphabet(alphabet)) * sizeof(float);
}

Model::Parameter::Parameter(const std::string& name, std::size_t floats, float learning_rate)
    : count(floats),
      rate(learning_rate),
      weight(name, floats),
      gradient("the gradient of " + name, floats),
      moment1("the first moment of " + name, floats),
      moment2("the second moment of " + name, floats) {
    for (const DeviceBuffer<float>* buffer : {&gradient, &moment1, &moment2}) {
        check(cudaMemset(buffer->data(), 0, buffer->bytes()), "cudaMemset");
    }
}

void Model::Parameter::set_uniform(float scale, std::uint32_t seed) {
    fill_uniform<<<blocks_for(count), kThreads>>>(weight.data(), count, seed, scale);
    launched("fill_uniform");
}

void Model::Parameter::set_zero() {
    check(cudaMemset(weight.data(), 0, weight.bytes()), "cudaMemset");
}

Model::Layer::Layer(const std::string& name, int inputs, int outputs, bool rectified)
    : in(inputs),
      out(outputs),
      relu(rectified),
      weight("the weights of " + name, static_cast<std::size_t>(inputs) * static_cast<std::size_t>(outputs),
             kRate * std::min(1.0f, static_cast<float>(kRateWidth) / static_cast<float>(inputs))),
      bias("the biases of " + name, static_cast<std::size_t>(outputs), kRate) {}

Model::Model(const Shape& shape) : shape_(shape), entropy_("the losses of a batch", kBatch) {
    std::uint32_t tensors = 0;
    const auto next_seed = [&] { return static_cast<std::uint32_t>(random_word(tensors++)); };

    for (int order = 1; order <= kContext; ++order) {
        const std::size_t rows = order == 1 ? static_cast<std::size_t>(shape.alphabet) : shape.table_rows;
        tables_.emplace_back("the table of order " + std::to_string(order), rows * kWidth, kRate);
        tables_.back().set_uniform(kTableScale, next_seed());
    }
    const int widths[kLayers + 1] = {kInputs, shape.hidden, shape.hidden, padded_alphabet(shape.alphabet)};
    const char* names[kLayers] = {"hidden layer 1", "hidden layer 2", "the output layer"};
    for (int i = 0; i < kLayers; ++i) {
        const bool output = i == kLayers - 1;
        layers_.emplace_back(names[i], widths[i], widths[i + 1], !output);
        const float fan_in = static_cast<float>(widths[i]);
        layers_.back().weight.set_uniform(
            output ? kOutputScale / std::sqrt(fan_in) : std::sqrt(6.0f / fan_in), next_seed());
        layers_.back().bias.set_zero();
    }
    for (int i = 0; i <= kLayers; ++i) {
        const std::size_t floats = static_cast<std::size_t>(kBatch) * static_cast<std::size_t>(widths[i]);
        const std::string of =
            i == 0 ? "the embeddings of a batch" : std::string("the outputs of ") + names[i - 1];
        activations_.emplace_back(of, floats);
        if (i < kLayers) gradients_.emplace_back("the gradient of " + of, floats);
    }
}

void Model::forward(const std::uint32_t* ids, int samples) {
    for (int i = 0; i < kContext; ++i) {
        gather_rows<<<blocks_for(static_cast<std::size_t>(samples * kWidth / 4)), kThreads>>>(
            tables_[i].weight.data(), ids, activations_[0].data(), samples, kContext, i, kWidth);
        launched("gather_rows");
    }
    for (int i = 0; i < kLayers; ++i) {
        const Layer& layer = layers_[i];
        const Tiles tiles(samples, layer.out);
        linear<<<tiles.grid, tiles.block>>>(activations_[i].data(), layer.weight.weight.data(),
                                            layer.bias.weight.data(), activations_[i + 1].data(), samples,
                                            layer.in, layer.out, layer.relu);
        launched("linear");
    }
}

void Model::backward(const std::uint32_t* ids, int samples) {
    for (int i = kLayers - 1; i >= 0; --i) {
        const Layer& layer = layers_[i];
        const float* dy = i == kLayers - 1 ? activations_.back().data() : gradients_[i + 1].data();
        const Tiles weights(layer.in, layer.out);
        linear_weight_gradient<<<weights.grid, weights.block>>>(
            activations_[i].data(), dy, layer.weight.gradient.data(), samples, layer.in, layer.out);
        launched("linear_weight_gradient");
        bias_gradient<<<blocks_for(static_cast<std::size_t>(layer.out)), kThreads>>>(
            dy, layer.bias.gradient.data(), samples, layer.out);
        launched("bias_gradient");
        const Tiles inputs(samples, layer.in);
        linear_input_gradient<<<inputs.grid, inputs.block>>>(
            dy, layer.weight.weight.data(), i > 0 ? activations_[i].data() : nullptr, gradients_[i].data(),
            samples, layer.in, layer.out);
        launched("linear_input_gradient");
    }
    for (int i = 0; i < kContext; ++i) {
        const DeviceBuffer<float>& gradient = tables_[i].gradient;
        check(cudaMemsetAsync(gradient.data(), 0, gradient.bytes()), "cudaMemsetAsync");
        scatter_gradient<<<blocks_for(static_cast<std::size_t>(samples * kWidth / 4)), kThreads>>>(
            gradients_[0].data(), ids, gradient.data(), samples, kContext, i, kWidth);
        launched("scatter_gradient");
    }
}

void Model::update(Parameter& parameter, int step) {
    const float t = static_cast<float>(step);
    const AdamStep adam_step{parameter.rate, kBeta1, kBeta2, 1 / (1 - std::pow(kBeta1, t)),
                             1 / (1 - std::pow(kBeta2, t))};
    const std::size_t quads = parameter.count / 4;
    adam<<<blocks_for(quads), kThreads>>>(parameter.weight.data(), parameter.gradient.data(),
                                          parameter.moment1.data(), parameter.moment2.data(), quads,
                                          adam_step);
    launched("adam");
}

void Model::train(const std::uint32_t* ids, const std::uint32_t* targets, float* loss, int step) {
    forward(ids, kBatch);
    cross_entropy<<<blocks_for(kBatch), kThreads>>>(activations_.back().data(), targets, entropy_.data(),
                                                    kBatch, shape_.alphabet, output_columns());
    launched("cross_entropy");
    mean<<<1, kBatch, kBatch * sizeof(float)>>>(entropy_.data(), loss);
    launched("mean");
    backward(ids, kBatch);
    for (Parameter& table : tables_) update(table, step);
    for (Layer& layer : layers_) {
        update(layer.weight, step);
        update(layer.bias, step);
    }
}

const float* Model::predict(const std::uint32_t* ids) {
    forward(ids, kPredictions);
    softmax<<<1, kPredictions>>>(activations_.back().data(), kPredictions, shape_.alphabet, output_columns());
    launched("softmax");
    return activations_.back().data();
}

}  // namespace demo
