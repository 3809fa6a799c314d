// The kernels of the demo. All matrices are row-major floats.
//
// Every sum has a fixed order and no kernel uses float atomics, so a run's losses repeat bit for bit. The
// matrix products keep a 4 x 4 tile of the result in registers and need no barrier; their shapes must be
// multiples of 4.
#pragma once

#include <cstddef>
#include <cstdint>

namespace demo {

inline constexpr int kTile = 4;

using Tile = float[kTile][kTile];

__device__ inline float4 load4(const float* p) {
    return *reinterpret_cast<const float4*>(p);
}
__device__ inline void store4(float* p, float4 v) {
    *reinterpret_cast<float4*>(p) = v;
}

__device__ inline void add_scaled(float* row, float scale, float4 v) {
    row[0] = fmaf(scale, v.x, row[0]);
    row[1] = fmaf(scale, v.y, row[1]);
    row[2] = fmaf(scale, v.z, row[2]);
    row[3] = fmaf(scale, v.w, row[3]);
}

__device__ inline float add_product(float sum, float4 a, float4 b) {
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// First row and column of the calling thread's tile; false when the tile lies outside rows x columns.
__device__ inline bool place_tile(int rows, int columns, int& row, int& column) {
    row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y) * kTile;
    column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kTile;
    return row < rows && column < columns;
}

// y = x w + bias, then max(y, 0) if `relu`. x: rows x in, w: in x out.
__global__ void linear(const float* x, const float* w, const float* bias, float* y, int rows, int in, int out,
                       bool relu) {
    int row, column;
    if (!place_tile(rows, out, row, column)) return;
    x += static_cast<std::size_t>(row) * in;
    w += column;
    Tile sum;
    const float4 start = load4(bias + column);
    for (int r = 0; r < kTile; ++r) {
        sum[r][0] = start.x;
        sum[r][1] = start.y;
        sum[r][2] = start.z;
        sum[r][3] = start.w;
    }
    for (int i = 0; i < in; i += kTile) {
        const float4 w0 = load4(w), w1 = load4(w + out), w2 = load4(w + 2 * out), w3 = load4(w + 3 * out);
        w += static_cast<std::size_t>(kTile) * out;
        for (int r = 0; r < kTile; ++r) {
            const float4 a = load4(x + static_cast<std::size_t>(r) * in + i);
            add_scaled(sum[r], a.x, w0);
            add_scaled(sum[r], a.y, w1);
            add_scaled(sum[r], a.z, w2);
            add_scaled(sum[r], a.w, w3);
        }
    }
    for (int r = 0; r < kTile; ++r) {
        float4 v = make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        if (relu) v = make_float4(fmaxf(v.x, 0), fmaxf(v.y, 0), fmaxf(v.z, 0), fmaxf(v.w, 0));
        store4(y + static_cast<std::size_t>(row + r) * out + column, v);
    }
}

// dx = dy w^T; where `activation` (the layer's input, the result of a relu) is given and zero, dx is zero.
__global__ void linear_input_gradient(const float* dy, const float* w, const float* activation, float* dx,
                                      int rows, int in, int out) {
    int row, column;
    if (!place_tile(rows, in, row, column)) return;
    dy += static_cast<std::size_t>(row) * out;
    w += static_cast<std::size_t>(column) * out;
    Tile sum = {};
    for (int j = 0; j < out; j += kTile) {
        float4 b[kTile];
        for (int c = 0; c < kTile; ++c) b[c] = load4(w + static_cast<std::size_t>(c) * out + j);
        for (int r = 0; r < kTile; ++r) {
            const float4 a = load4(dy + static_cast<std::size_t>(r) * out + j);
            for (int c = 0; c < kTile; ++c) sum[r][c] = add_product(sum[r][c], a, b[c]);
        }
    }
    for (int r = 0; r < kTile; ++r) {
        const std::size_t at = static_cast<std::size_t>(row + r) * in + column;
        float4 v = make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        if (activation) {
            const float4 a = load4(activation + at);
            v = make_float4(a.x > 0 ? v.x : 0, a.y > 0 ? v.y : 0, a.z > 0 ? v.z : 0, a.w > 0 ? v.w : 0);
        }
        store4(dx + at, v);
    }
}

// dw = x^T dy.
__global__ void linear_weight_gradient(const float* x, const float* dy, float* dw, int rows, int in,
                                       int out) {
    int row, column;
    if (!place_tile(in, out, row, column)) return;
    x += row;
    dy += column;
    Tile sum = {};
    for (int b = 0; b < rows; ++b) {
        const float4 a = load4(x), d = load4(dy);
        x += in;
        dy += out;
        add_scaled(sum[0], a.x, d);
        add_scaled(sum[1], a.y, d);
        add_scaled(sum[2], a.z, d);
        add_scaled(sum[3], a.w, d);
    }
    for (int r = 0; r < kTile; ++r) {
        store4(dw + static_cast<std::size_t>(row + r) * out + column,
               make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
    }
}

// dbias = the column sums of dy.
__global__ void bias_gradient(const float* dy, float* dbias, int rows, int out) {
    const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (column >= out) return;
    float sum = 0;
    for (int b = 0; b < rows; ++b) sum += dy[static_cast<std::size_t>(b) * out + column];
    dbias[column] = sum;
}

// Copies the rows of one table that a batch names into columns [first, first + width) of x. `ids` has
// `orders` entries a sample, of which this table reads number `order`. One thread moves four floats.
__global__ void gather_rows(const float* table, const std::uint32_t* ids, float* x, int samples, int orders,
                            int order, int width) {
    const int quads = width / 4;
    const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (index >= samples * quads) return;
    const int sample = index / quads, column = index % quads * 4;
    const std::size_t id = ids[sample * orders + order];
    store4(x + (static_cast<std::size_t>(sample) * orders + order) * width + column,
           load4(table + id * width + column));
}

// The inverse: dtable, zero before, gets at each named row the sum of dx over the samples naming it. The
// first such sample's thread adds them all, in order; the others do nothing.
__global__ void scatter_gradient(const float* dx, const std::uint32_t* ids, float* dtable, int samples,
                                 int orders, int order, int width) {
    const int quads = width / 4;
    const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (index >= samples * quads) return;
    const int sample = index / quads, column = index % quads * 4;
    const std::uint32_t id = ids[sample * orders + order];
    for (int b = 0; b < sample; ++b) {
        if (ids[b * orders + order] == id) return;
    }
    float sum[4] = {};
    for (int b = sample; b < samples; ++b) {
        if (ids[b * orders + order] != id) continue;
        add_scaled(sum, 1, load4(dx + (static_cast<std::size_t>(b) * orders + order) * width + column));
    }
    store4(dtable + static_cast<std::size_t>(id) * width + column,
           make_float4(sum[0], sum[1], sum[2], sum[3]));
}

// Replaces a row of logits by its softmax over the first `symbols` columns and zeros the rest. Returns the
// log of the sum of the exponentials.
__device__ inline float softmax_row(float* row, int symbols, int columns) {
    float largest = row[0];
    for (int c = 1; c < symbols; ++c) largest = fmaxf(largest, row[c]);
    float sum = 0;
    for (int c = 0; c < symbols; ++c) sum += expf(row[c] - largest);
    for (int c = 0; c < symbols; ++c) row[c] = expf(row[c] - largest) / sum;
    for (int c = symbols; c < columns; ++c) row[c] = 0;
    return largest + logf(sum);
}

__global__ void softmax(float* logits, int rows, int symbols, int columns) {
    const int r = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (r < rows) softmax_row(logits + static_cast<std::size_t>(r) * columns, symbols, columns);
}

// Turns logits into the gradient of the batch's mean cross entropy, and writes each sample's cross entropy.
__global__ void cross_entropy(float* logits, const std::uint32_t* targets, float* entropy, int rows,
                              int symbols, int columns) {
    const int r = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (r >= rows) return;
    float* row = logits + static_cast<std::size_t>(r) * columns;
    const float target = row[targets[r]];
    entropy[r] = softmax_row(row, symbols, columns) - target;
    const float share = 1.0f / rows;
    for (int c = 0; c < symbols; ++c) row[c] = (row[c] - (c == targets[r] ? 1.0f : 0.0f)) * share;
}

// *result = the mean of as many values as the (one) block has threads, a power of two, added as a binary
// tree.
__global__ void mean(const float* values, float* result) {
    extern __shared__ float partial[];
    const unsigned t = threadIdx.x;
    partial[t] = values[t];
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) partial[t] += partial[t + half];
    }
    if (t == 0) *result = partial[0] / blockDim.x;
}

struct AdamStep {
    float rate;              // learning rate
    float beta1, beta2;      // decay of the moments
    float unbias1, unbias2;  // 1 / (1 - beta^step)
};

__device__ inline void adam_one(float& w, float g, float& m, float& v, const AdamStep& step) {
    m = fmaf(1 - step.beta1, g - m, m);
    v = fmaf(1 - step.beta2, fmaf(g, g, -v), v);
    w -= step.rate * m * step.unbias1 / (sqrtf(v * step.unbias2) + 1e-8f);
}

// One step of Adam on `quads` groups of four parameters, in place.
__global__ void adam(float* weight, const float* gradient, float* moment1, float* moment2, std::size_t quads,
                     AdamStep step) {
    const std::size_t index = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= quads) return;
    const float4 g = load4(gradient + index * 4);
    float4 w = load4(weight + index * 4), m = load4(moment1 + index * 4), v = load4(moment2 + index * 4);
    adam_one(w.x, g.x, m.x, v.x, step);
    adam_one(w.y, g.y, m.y, v.y, step);
    adam_one(w.z, g.z, m.z, v.z, step);
    adam_one(w.w, g.w, m.w, v.w, step);
    store4(weight + index * 4, w);
    store4(moment1 + index * 4, m);
    store4(moment2 + index * 4, v);
}

// values[i] = a number of (-scale, scale) that depends on i and `seed` alone.
__global__ void fill_uniform(float* values, std::size_t count, std::uint32_t seed, float scale) {
    const std::size_t index = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index >= count) return;
    std::uint32_t h =
        static_cast<std::uint32_t>(index) * 0x9e3779b9u ^ static_cast<std::uint32_t>(index >> 32) ^ seed;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    values[index] = (static_cast<float>(h >> 8) * (2.0f / (1 << 24)) - 1) * scale;
}

}  // namespace demo
