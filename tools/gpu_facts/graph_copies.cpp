// Fact 11: a graph's copy after its destination was mapped again.
#include <cstring>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

constexpr unsigned char kBefore = 0x11, kAfter = 0x22;  // contents of the source

class CopyGraph {
  public:
    CopyGraph(const Card& card, Address to, Address from, std::uint64_t bytes) : context_(card.context) {
        copy_.srcMemoryType = copy_.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy_.srcDevice = from;
        copy_.dstDevice = to;
        copy_.WidthInBytes = bytes;
        copy_.Height = copy_.Depth = 1;
        CU(cuGraphCreate, &graph_, 0);
        CU(cuGraphAddMemcpyNode, &node_, graph_, nullptr, 0, &copy_, context_);
        CU(cuGraphInstantiateWithFlags, &exec_, graph_, 0);
    }
    ~CopyGraph() {
        driver().cuGraphExecDestroy(exec_);
        driver().cuGraphDestroy(graph_);
    }
    CopyGraph(const CopyGraph&) = delete;
    CopyGraph& operator=(const CopyGraph&) = delete;

    // How launch and execution end; of the first that fails.
    CUresult run(const Stream& stream) const {
        const CUresult status = driver().cuGraphLaunch(exec_, stream);
        return status == CUDA_SUCCESS ? driver().cuStreamSynchronize(stream) : status;
    }
    // The node's own parameters once more.
    CUresult set_again() const {
        return driver().cuGraphExecMemcpyNodeSetParams(exec_, node_, &copy_, context_);
    }

  private:
    const CUcontext context_;
    CUDA_MEMCPY3D copy_{};
    CUgraph graph_ = nullptr;
    CUgraphNode node_ = nullptr;
    CUgraphExec exec_ = nullptr;
};

bool holds(Address address, std::uint64_t bytes, unsigned char value) {
    std::vector<unsigned char> found(bytes);
    CU(cuMemcpyDtoH_v2, found.data(), address, bytes);
    for (const unsigned char byte : found) {
        if (byte != value) return false;
    }
    return true;
}

// `other` is mapped behind the destination after the first launch, the block's own memory where it is 0.
void measure(const Card& card, CUmemGenericAllocationHandle other, CUmemLocation location,
             std::uint64_t bytes, Record& record) {
    const Stream stream;
    const Block source(card, bytes, Place::Device);
    Block destination(card, bytes, Place::Device);
    const CopyGraph graph(card, destination.address, source.address, bytes);
    CU(cuMemsetD8_v2, source.address, kBefore, bytes);
    CU(cuCtxSynchronize);
    record.text("launch before the remap", name_of(graph.run(stream)));
    record.answer("data before the remap is right", holds(destination.address, bytes, kBefore));

    destination.remap(card, other == 0 ? destination.handle : other, location);
    CU(cuMemsetD8_v2, source.address, kAfter, bytes);
    CU(cuMemsetD8_v2, destination.address, 0, bytes);
    CU(cuCtxSynchronize);
    record.text("cuGraphExecMemcpyNodeSetParams after it", name_of(graph.set_again()));
    const CUresult launched = graph.run(stream);
    record.text("launch after the remap", name_of(launched));
    if (launched == CUDA_SUCCESS)
        record.answer("data after the remap is right", holds(destination.address, bytes, kAfter));
}

}  // namespace

void graph_copy_same_memory(const Card& card, Record& record) {
    measure(card, 0, card.location(Place::Device), card.sized(2 * kMiB, 8), record);
}

void graph_copy_other_memory(const Card& card, Record& record) {
    const Block other(card, card.sized(2 * kMiB, 8), Place::Device);
    measure(card, other.handle, card.location(Place::Device), other.bytes, record);
}

void graph_copy_host_memory(const Card& card, Record& record) {
    const Block other(card, card.sized(2 * kMiB, 8), Place::Host);
    measure(card, other.handle, card.location(Place::Host), other.bytes, record);
}

}  // namespace facts
