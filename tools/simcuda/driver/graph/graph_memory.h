// Memory that graphs allocate: an address for as long as a node or an executable graph names it, memory
// behind it from the launch that allocates to the free that ends it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/memory.h"

namespace simcuda::driver {

class Context;
class Graph;
class Stream;
struct GraphBlock;  // memory, behind one address or several

class GraphMemory : public std::enable_shared_from_this<GraphMemory> {
  public:
    // Reserves the address. Throws Failure with CUDA_ERROR_OUT_OF_MEMORY. create_graph_memory() makes one.
    GraphMemory(Device& device, std::uint64_t bytes);
    ~GraphMemory();
    GraphMemory(const GraphMemory&) = delete;
    GraphMemory& operator=(const GraphMemory&) = delete;

    Device& device() const { return device_; }
    std::uint64_t bytes() const { return bytes_; }
    CUdeviceptr address() const { return address_; }

    // Which graphs have a node that frees it: the owner alone, or any others, each once. Throws Failure with
    // CUDA_ERROR_INVALID_VALUE. Used by one thread at a time, as the graphs are.
    const Graph* owner = nullptr;
    void add_free_in(const Graph& graph);
    void forget_graph(const Graph& graph);

    // The program has it and may free it: a launch allocated it, and no call or launch has freed it since.
    // Returns what was so before.
    bool outstanding() const;
    bool set_outstanding(bool value);

    // Each launch that allocates begins a use, each free that a stream comes to ends one. While there is one
    // there is memory behind the address; launches may overlap in time as far as the host can see. Throws
    // Failure with CUDA_ERROR_OUT_OF_MEMORY.
    void begin_use(Context& context, const Stream& stream);
    void end_use();

    // A launch in the stream frees it, and has been given to the stream: a later launch there may have the
    // memory for another address.
    void pass_on(const Stream& stream);

  private:
    bool keeps_block(const Stream& stream) const;
    void map(Context& context, const Stream& stream);

    Device& device_;
    const std::uint64_t bytes_;
    CUdeviceptr address_ = 0;
    std::set<const Graph*> freed_in_;

    mutable std::mutex mutex_;  // guards what follows
    bool outstanding_ = false;
    unsigned uses_ = 0;
    std::shared_ptr<GraphBlock> block_;  // while there is a use
};

std::shared_ptr<GraphMemory> create_graph_memory(Device& device, std::uint64_t bytes);

// The graph memory whose addresses hold all of the range, or null. Cheap while there is none.
std::shared_ptr<GraphMemory> graph_memory_at(std::uint64_t address, std::uint64_t bytes = 1);

// cuDeviceGetGraphMemAttribute, in bytes. Nothing is kept that is not in use.
std::uint64_t graph_memory_used(const Device& device);
std::uint64_t graph_memory_high(const Device& device);
void reset_graph_memory_high(const Device& device);

}  // namespace simcuda::driver
