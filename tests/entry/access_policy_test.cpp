// Access-policy windows over managed buffers: hints about a range of addresses, which move nothing and keep
// nothing from moving.
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

CUaccessPolicyWindow window_over(const Buffer& buffer) {
    CUaccessPolicyWindow window{};
    window.base_ptr = reinterpret_cast<void*>(buffer.at());
    window.num_bytes = buffer.bytes();
    window.hitRatio = 1;
    window.hitProp = CU_ACCESS_PROPERTY_PERSISTING;
    window.missProp = CU_ACCESS_PROPERTY_STREAMING;
    return window;
}

bool is_over(const CUaccessPolicyWindow& window, const Buffer& buffer) {
    return window.base_ptr == reinterpret_cast<void*>(buffer.at()) && window.num_bytes == buffer.bytes();
}

}  // namespace

FAMILY_TEST("access policy: a stream's window outlives the moves of what it is over") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.evict(in);
    CUstreamAttrValue value{};
    value.accessPolicyWindow = window_over(in);
    OK(cuStreamSetAttribute, stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value);
    EXPECT(in.evicted());
    for (unsigned k = 1; k <= 3; ++k) {
        crowd.evict(in);
        crowd.evict(out);
        EXPECT(launch("add", kWords, stream, out.at(), in.at(), k, kWords) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, stream);
        EXPECT(in.resident());
        EXPECT(out.read() == plus(pattern(kBuffer, 1), k));
        CUstreamAttrValue held{};
        OK(cuStreamGetAttribute, stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &held);
        EXPECT(is_over(held.accessPolicyWindow, in));
    }
    crowd.evict(in);
    EXPECT(in.holds(1));
    OK(cuCtxResetPersistingL2Cache);
}

FAMILY_TEST("access policy: a launch's window over a buffer that is out, also one it does not name",
            "access-policy") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    const Buffer other(kBuffer, 3);
    Crowd crowd;
    unsigned k = 0;
    for (const Buffer* over : {&in, &other}) {
        for (const Buffer* buffer : {&in, &out, &other}) crowd.evict(*buffer);
        CUlaunchAttribute attribute{};
        attribute.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
        attribute.value.accessPolicyWindow = window_over(*over);
        CUlaunchConfig config{};
        config.gridDimX = (kWords + 255) / 256;
        config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
        config.blockDimX = 256;
        config.hStream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
        Add sum(out.at(), in.at(), ++k);
        OK(cuLaunchKernelEx, &config, sum.params.func, sum.arguments, nullptr);
        OK(cuStreamSynchronize, stream);
        EXPECT(out.read() == plus(pattern(kBuffer, 1), k));
        EXPECT(other.evicted());
    }
    EXPECT(other.holds(3));
}

FAMILY_TEST("access policy: a graph node's window") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer in(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    const Add sum(out.at(), in.at(), 5);
    const CUgraph graph = new_graph();
    const CUgraphNode node = add_kernel(graph, sum.params);
    CUkernelNodeAttrValue value{};
    value.accessPolicyWindow = window_over(in);
    OK(cuGraphKernelNodeSetAttribute, node, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value);
    const CUgraphExec exec = instantiate(graph);
    for (const Buffer* buffer : {&in, &out}) crowd.evict(*buffer);
    launch_and_wait(exec, stream);
    EXPECT(out.read() == plus(pattern(kBuffer, 1), 5));
    OK(cuGraphKernelNodeGetAttribute, node, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value);
    EXPECT(is_over(value.accessPolicyWindow, in));
    crowd.evict(in);
    EXPECT(in.holds(1));
}
