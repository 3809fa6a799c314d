// Conditional handles of graphs: a word of device memory that kernels set and conditional nodes read. The
// handle is the word's address, so cudaGraphSetConditional is a store, and one through a handle that has
// ended faults.
#pragma once

#include <cstdint>
#include <memory>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/memory.h"

namespace simcuda::driver {

class Context;
class Graph;

class Conditional {
  public:
    // Throws Failure with CUDA_ERROR_OUT_OF_MEMORY. create_conditional() makes one.
    Conditional(Context& context, const Graph& graph, unsigned default_value, bool assigns_default);
    ~Conditional();
    Conditional(const Conditional&) = delete;
    Conditional& operator=(const Conditional&) = delete;

    CUgraphConditionalHandle handle() const { return address_; }
    unsigned value() const;
    void assign_default() const;

    const Graph* const graph;
    const std::weak_ptr<Context> context;
    const unsigned default_value;
    const bool assigns_default;  // at the beginning of each launch
    bool used = false;           // by a conditional node

  private:
    const std::weak_ptr<const Region> word_;  // goes with the context
    const DeviceAddress address_;
};

std::shared_ptr<Conditional> create_conditional(Context& context, const Graph& graph, unsigned default_value,
                                                bool assigns_default);

// Throws Failure with CUDA_ERROR_INVALID_VALUE for anything that is not live.
std::shared_ptr<Conditional> checked_conditional(CUgraphConditionalHandle handle);

}  // namespace simcuda::driver
