// Device memory that frees itself, and the frame of programs that try one kind of kernel: batches of values
// that are all alive at once.
#pragma once

#include <list>

#include "check.h"

template <class T>
class Buffer {
  public:
    explicit Buffer(std::size_t n) : n_(n) { CHECK(cudaMalloc(&data_, n * sizeof(T))); }
    explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
        CHECK(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() { cudaFree(data_); }

    T* get() const { return data_; }
    std::vector<T> values(std::size_t n) const {
        std::vector<T> host(n);
        CHECK(cudaMemcpy(host.data(), data_, n * sizeof(T), cudaMemcpyDeviceToHost));
        return host;
    }
    // Its first values are these.
    void expect(const std::vector<T>& expected, const char* what) const {
        const std::vector<T> found = values(expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
            if (!(found[i] == expected[i])) {
                FAIL("%s, element %zu: %.17g, not %.17g", what, i, static_cast<double>(found[i]),
                     static_cast<double>(expected[i]));
            }
        }
    }

  private:
    T* data_ = nullptr;
    std::size_t n_;
};

// Fills several inputs with make(index), calls launch(in, out, n) for each and only then verifies the
// outputs, which are expected(inputs): all of a batch's, from all of its inputs. n is a multiple of 1024.
template <class In, class Out, class Make, class Launch, class Expected>
void over_batches(std::size_t bytes, const char* what, const Make& make, const Launch& launch,
                  const Expected& expected) {
    constexpr std::size_t kBatches = 16, kUnit = 1024;
    const std::size_t n =
        std::max<std::size_t>(bytes / kBatches / (sizeof(In) + sizeof(Out)) / kUnit, 1) * kUnit;
    struct Batch {
        Batch(const std::vector<In>& values) : host(values), in(values), out(values.size()) {}
        std::vector<In> host;
        Buffer<In> in;
        Buffer<Out> out;
    };
    std::list<Batch> batches;
    for (std::size_t b = 0; b < kBatches; ++b) {
        std::vector<In> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = make(b * n + i);
        batches.emplace_back(values);
        CHECK(cudaMemset(batches.back().out.get(), 0xEE, n * sizeof(Out)));
    }
    for (const Batch& batch : batches) {
        launch(batch.in.get(), batch.out.get(), static_cast<unsigned>(n));
        CHECK_LAUNCH();
    }
    for (const Batch& batch : batches) batch.out.expect(expected(batch.host), what);
}
