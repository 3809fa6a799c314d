// The language model: n-gram embeddings, two wide hidden layers, softmax; trained with Adam.
//
// The last characters are read as n-grams of orders 1 to kContext. Each order has a table of embeddings,
// hashed for orders above 1; the embeddings named by the context stand side by side and feed the first hidden
// layer.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device_buffer.h"

namespace demo {

struct Shape {
    int alphabet;              // symbols the softmax chooses from
    int hidden;                // width of each hidden layer
    std::uint32_t table_rows;  // of each hashed table

    // The largest model of at most `bytes` of GPU memory, about three quarters of it in the tables. Throws
    // std::invalid_argument when `bytes` is too small for any.
    static Shape for_memory(std::size_t bytes, int alphabet);

    std::size_t parameters() const;
    std::size_t bytes() const;  // of GPU memory: parameters, gradients, moments, activations
};

class Model {
  public:
    static constexpr int kBatch = 256;      // samples a training step takes
    static constexpr int kPredictions = 4;  // samples a prediction takes

    // Allocates all memory and fills the parameters. Throws OutOfMemory, CudaError.
    explicit Model(const Shape& shape);

    // Enqueues training step number `step`, from 1, on the default stream. `ids` (kBatch x kContext),
    // `targets` (kBatch) and `loss` (one float, the batch's mean cross entropy in nats) are device memory.
    void train(const std::uint32_t* ids, const std::uint32_t* targets, float* loss, int step);

    // Enqueues a prediction on the default stream. Returns the probabilities, in device memory until the next
    // call: kPredictions rows of output_columns(), of which the alphabet's come first.
    const float* predict(const std::uint32_t* ids);

    const Shape& shape() const { return shape_; }
    int output_columns() const { return layers_.back().out; }

  private:
    struct Parameter {
        Parameter(const std::string& name, std::size_t floats, float learning_rate);
        void set_uniform(float scale, std::uint32_t seed);
        void set_zero();

        std::size_t count;
        float rate;
        DeviceBuffer<float> weight, gradient, moment1, moment2;
    };
    struct Layer {
        Layer(const std::string& name, int inputs, int outputs, bool rectified);

        int in, out;
        bool relu;
        Parameter weight, bias;
    };

    void forward(const std::uint32_t* ids, int samples);
    void backward(const std::uint32_t* ids, int samples);
    void update(Parameter& parameter, int step);

    Shape shape_;
    std::vector<Parameter> tables_;
    std::vector<Layer> layers_;
    std::vector<DeviceBuffer<float>> activations_;  // [i] goes into layer i; the last are the logits
    std::vector<DeviceBuffer<float>> gradients_;    // of the activations; of the logits in place
    DeviceBuffer<float> entropy_;
};

}  // namespace demo
