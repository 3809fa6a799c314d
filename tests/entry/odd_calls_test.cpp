// Calls that are asked for nothing, too much, or the impossible, while memory is out: each gives the answer
// it gives without the shim.
#include <limits>

#include "tests/entry/graph_rig.h"
#include "tests/entry/odd.h"

using namespace rig;

namespace {

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

}  // namespace

BODY(odd_sets) {
    const Gpu gpu;
    const Out out;
    const CUdeviceptr a = out.a.at();
    const CUstream stream = new_stream();
    // The product with the size of a value goes round.
    TELL("too many", cuMemsetD32_v2, a, 1, std::size_t{1} << 62);
    TELL("too many", cuMemsetD16_v2, a, 1, (std::size_t{1} << 63) + 4);
    TELL("too many", cuMemsetD32Async, a, 1, (std::size_t{1} << 62) + 4, stream);
    TELL("too many", cuMemsetD16Async, a, 1, std::size_t{1} << 63, stream);
    TELL("too many", cuMemsetD8_v2, a, 1, kMost);
    TELL("too wide", cuMemsetD2D32_v2, a, kBuffer, 1, std::size_t{1} << 62, 1);
    TELL("too high", cuMemsetD2D8_v2, a, std::size_t{1} << 40, 1, 1, (std::size_t{1} << 24) + 1);
    TELL("no width", cuMemsetD2D8_v2, a, kBuffer, 1, 0, 10);
    TELL("no width", cuMemsetD2D32Async, a, kBuffer, 1, 0, 10, stream);
    TELL("no height", cuMemsetD2D16_v2, a, kBuffer, 1, 10, 0);
    TELL("nothing", cuMemsetD8_v2, a, 1, 0);
    TELL("nothing, past the end", cuMemsetD8_v2, a + 2 * kOdd, 1, 0);
    TELL("misaligned", cuMemsetD32_v2, a + 2, 1, 4);
    TELL("misaligned", cuMemsetD16Async, a + 1, 1, 4, stream);
    TELL("misaligned pitch", cuMemsetD2D32_v2, a, 1026, 1, 16, 4);
    TELL("rows that overlap", cuMemsetD2D8_v2, a, 16, 1, 64, 4);
    OK(cuCtxSynchronize);
    EXPECT(out.a.holds(1));
    EXPECT(out.b.holds(2));
}

TEST_CASE("odd calls: sets") {
    same_under_pressure("odd_sets");
}

BODY(odd_batches) {
    const Gpu gpu;
    const Out out;
    const CUstream stream = new_stream();
    CUdeviceptr to[] = {out.b.at(), out.b.at(256)};
    CUdeviceptr from[] = {out.a.at(), out.a.at(512)};
    std::size_t sizes[] = {16, 16};
    CUmemcpyAttributes attributes[3] = {};
    for (CUmemcpyAttributes& each : attributes) each.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t starts[] = {0, 1, 2};
    std::size_t failed = 7;
    const auto batch = [&](const std::string& what, std::size_t count, std::size_t runs) {
        failed = 7;
        TELL(what, cuMemcpyBatchAsync, to, from, sizes, count, attributes, starts, runs, &failed, stream);
        tell_number(what, failed);
        TELL(what, cuMemcpyBatchAsync_v2, to, from, sizes, count, attributes, starts, runs, stream);
    };
    batch("no copies", 0, 1);
    batch("no attributes", 2, 0);
    batch("more attributes than copies", 2, 3);
    starts[1] = 0;
    batch("attributes for none", 2, 2);
    starts[0] = 1;
    batch("none for the first", 2, 1);
    starts[0] = 0;
    sizes[1] = 0;
    batch("nothing", 2, 1);
    sizes[1] = 16;
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    batch("no order", 2, 1);
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    from[1] = 0;
    batch("from nowhere", 2, 1);
    from[1] = out.a.at(512);
    TELL("no failure index", cuMemcpyBatchAsync, to, from, sizes, 0, attributes, starts, 1, nullptr, stream);
    TELL("null stream", cuMemcpyBatchAsync_v2, to, from, sizes, 2, attributes, starts, 1, nullptr);
    TELL("legacy stream", cuMemcpyBatchAsync_v2, to, from, sizes, 2, attributes, starts, 1, CU_STREAM_LEGACY);

    CUDA_MEMCPY3D_BATCH_OP boxes[2] = {};
    for (int i = 0; i < 2; ++i) {
        boxes[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        boxes[i].src.type = boxes[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        boxes[i].src.op.ptr.ptr = out.a.at(512 * i);
        boxes[i].dst.op.ptr.ptr = out.b.at(512 * i);
        boxes[i].extent = {16, 1, 1};
    }
    const auto boxed = [&](const std::string& what, std::size_t count, unsigned long long flags = 0) {
        failed = 7;
        TELL(what, cuMemcpy3DBatchAsync, count, boxes, &failed, flags, stream);
        tell_number(what, failed);
        TELL(what, cuMemcpy3DBatchAsync_v2, count, boxes, flags, stream);
    };
    boxed("no boxes", 0);
    boxed("unknown flags", 2, 1);
    boxes[1].extent = {16, 0, 1};
    boxed("a box of no height", 2);
    boxes[1].extent = {16, 1, 0};
    boxed("a box of no depth", 2);
    boxes[1].extent = {0, 1, 1};
    boxed("a box of no width", 2);
    boxes[1].extent = {16, 2, 1};
    boxes[1].src.op.ptr.rowLength = 8;
    boxed("rows shorter than the box", 2);
    OK(cuCtxSynchronize);
    EXPECT(out.a.holds(1));
}

TEST_CASE("odd calls: batches") {
    same_under_pressure("odd_batches");
}

BODY(odd_words) {
    const Gpu gpu;
    const Out out;
    const CUstream stream = new_stream();
    for (const std::size_t at : {kOdd / 8 * 8 - 8, kOdd / 8 * 8, kOdd / 8 * 8 + 8, kOdd + 24}) {
        const CUdeviceptr word = out.a.at(at / 8 * 8);
        const std::string what = "at " + std::to_string(at);
        TELL(what, cuStreamWriteValue32_v2, stream, word, 1, 0);
        TELL(what, cuStreamWriteValue64_v2, stream, word, 1, 0);
        TELL(what, cuStreamWaitValue32_v2, stream, word, 0, CU_STREAM_WAIT_VALUE_GEQ);
        TELL(what, cuStreamWaitValue64_v2, stream, word, 0, CU_STREAM_WAIT_VALUE_GEQ);
        CUstreamBatchMemOpParams operations[2] = {};
        operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        operations[0].writeValue.address = out.b.at();
        operations[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
        operations[1].writeValue.address = word;
        TELL(what, cuStreamBatchMemOp_v2, stream, 2, operations, 0);
        CUDA_BATCH_MEM_OP_NODE_PARAMS params{gpu.context, 2, operations, 0};
        const CUgraph graph = new_graph();
        CUgraphNode node = nullptr;
        TELL(what, cuGraphAddBatchMemOpNode, &node, graph, nullptr, 0, &params);
        operations[1].writeValue.address = out.b.at(8);
        OK(cuGraphAddBatchMemOpNode, &node, graph, nullptr, 0, &params);
        const CUgraphExec exec = instantiate(graph);
        operations[1].writeValue.address = word;
        TELL(what, cuGraphBatchMemOpNodeSetParams, node, &params);
        TELL(what, cuGraphExecBatchMemOpNodeSetParams, exec, node, &params);
        CUgraphNodeParams general{};
        general.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        general.memOp = {gpu.context, 2, operations, 0};
        TELL(what, cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &general);
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, graph);
    }
    TELL("misaligned", cuStreamWriteValue32_v2, stream, out.a.at(2), 1, 0);
    TELL("unknown flags", cuStreamWaitValue32_v2, stream, out.a.at(), 1, 64);
    TELL("no operations", cuStreamBatchMemOp_v2, stream, 2, nullptr, 0);
    TELL("no operations", cuStreamBatchMemOp_v2, stream, 0, nullptr, 0);
    OK(cuCtxSynchronize);
}

TEST_CASE("odd calls: values that streams write and wait for") {
    same_under_pressure("odd_words");
}

BODY(odd_nodes) {
    const Gpu gpu;
    const Out out;
    const CUgraph graph = new_graph();
    CUgraphNode node = nullptr;
    CUgraphNodeParams general{};
    general.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    general.memOp = {gpu.context, 3, nullptr, 0};
    TELL("no operations", cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &general);
    CUstreamBatchMemOpParams operation{};
    operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = out.b.at();
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch{gpu.context, 1, &operation, 0};
    OK(cuGraphAddBatchMemOpNode, &node, graph, nullptr, 0, &batch);
    const CUgraphExec exec = instantiate(graph);
    batch = {gpu.context, 3, nullptr, 0};
    TELL("no operations", cuGraphExecBatchMemOpNodeSetParams, exec, node, &batch);
    TELL("no operations", cuGraphExecNodeSetParams, exec, node, &general);
    TELL("no operations", cuGraphNodeSetParams, node, &general);
    batch = {gpu.context, 1u << 31, &operation, 0};
    TELL("too many operations", cuGraphExecBatchMemOpNodeSetParams, exec, node, &batch);
    general.memOp = {gpu.context, 1u << 31, &operation, 0};
    TELL("too many operations", cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &general);
    TELL("no parameters", cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, nullptr);
    TELL("no parameters", cuGraphExecNodeSetParams, exec, node, nullptr);
    TELL("no parameters", cuGraphExecBatchMemOpNodeSetParams, exec, node, nullptr);
    TELL("no parameters", cuGraphExecMemcpyNodeSetParams, exec, node, nullptr, gpu.context);
    TELL("no parameters", cuGraphExecKernelNodeSetParams_v2, exec, node, nullptr);
    TELL("no parameters", cuGraphAddMemcpyNode, &node, graph, nullptr, 0, nullptr, gpu.context);
    CUDA_MEMSET_NODE_PARAMS set = set_of(out.a.at(), 1);
    set.width = 0;
    TELL("no width", cuGraphAddMemsetNode, &node, graph, nullptr, 0, &set, gpu.context);
    set = set_of(out.a.at(), 1);
    set.height = 0;
    TELL("no height", cuGraphAddMemsetNode, &node, graph, nullptr, 0, &set, gpu.context);
    set = set_of(out.a.at(), 1);
    set.elementSize = 3;
    TELL("elements of 3", cuGraphAddMemsetNode, &node, graph, nullptr, 0, &set, gpu.context);
    set.elementSize = 4;
    set.width = std::size_t{1} << 62;
    TELL("too wide", cuGraphAddMemsetNode, &node, graph, nullptr, 0, &set, gpu.context);
    TELL("no child", cuGraphExecChildGraphNodeSetParams, exec, node, nullptr);
    general = {};
    general.type = CU_GRAPH_NODE_TYPE_GRAPH;
    TELL("no child", cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &general);
    general.type = static_cast<CUgraphNodeType>(77);
    TELL("no such type", cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &general);
    CUDA_KERNEL_NODE_PARAMS kernel_params{};
    TELL("no kernel", cuGraphAddKernelNode_v2, &node, graph, nullptr, 0, &kernel_params);
    TELL("no kernel", cuGraphExecKernelNodeSetParams_v2, exec, node, &kernel_params);
    CUgraphExec none = nullptr;
    TELL("no graph", cuGraphInstantiateWithFlags, &none, nullptr, 0);
    TELL("nowhere", cuGraphInstantiateWithFlags, nullptr, graph, 0);
    TELL("unknown flags", cuGraphInstantiateWithFlags, &none, graph, 1ull << 40);
    TELL("no parameters", cuGraphInstantiateWithParams, &none, graph, nullptr);
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = 1ull << 40;
    params.result_out = static_cast<CUgraphInstantiateResult>(77);
    TELL("unknown flags", cuGraphInstantiateWithParams, &none, graph, &params);
    tell_number("result", params.result_out);
    TELL("no graph", cuGraphDestroy, nullptr);
    TELL("no graph", cuGraphExecDestroy, nullptr);
    TELL("no graph", cuGraphLaunch, nullptr, nullptr);
    CUgraphExecUpdateResultInfo info{};
    TELL("no graph", cuGraphExecUpdate_v2, exec, nullptr, &info);
    TELL("nobody to tell", cuGraphExecUpdate_v2, exec, graph, nullptr);
    TELL("no node", cuGraphNodeSetEnabled, exec, nullptr, 0);
    EXPECT(out.b.holds(2));
    EXPECT(out.a.holds(1));
}

TEST_CASE("odd calls: nodes of graphs") {
    same_under_pressure("odd_nodes");
}

BODY(odd_textures) {
    const Gpu gpu;
    const Out out;
    const CUDA_TEXTURE_DESC texture{};
    CUtexObject object = 0;
    CUDA_RESOURCE_DESC words{};
    words.resType = CU_RESOURCE_TYPE_LINEAR;
    words.res.linear.devPtr = out.a.at();
    words.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    words.res.linear.numChannels = 1;
    for (const std::size_t bytes : {kOdd, kOdd + 4, std::size_t{4}, std::size_t{0}}) {
        words.res.linear.sizeInBytes = bytes;
        const std::string what = "words in " + std::to_string(bytes);
        TELL(what, cuTexObjectCreate, &object, &words, &texture, nullptr);
    }
    CUDA_RESOURCE_DESC rows{};
    rows.resType = CU_RESOURCE_TYPE_PITCH2D;
    auto& pitched = rows.res.pitch2D;
    pitched.devPtr = out.a.at();
    pitched.format = CU_AD_FORMAT_UNSIGNED_INT16;
    pitched.numChannels = 2;
    pitched.pitchInBytes = 4096;
    // The last row ends before its pitch does.
    for (const std::size_t width : {250, 251, 1024}) {
        for (const std::size_t height : {std::size_t{0}, kBuffer / 4096, kBuffer / 4096 + 1}) {
            pitched.width = width;
            pitched.height = height;
            const std::string what = std::to_string(height) + " rows of " + std::to_string(width);
            TELL(what, cuTexObjectCreate, &object, &rows, &texture, nullptr);
        }
    }
    pitched.format = CU_AD_FORMAT_NV12;
    TELL("planes", cuTexObjectCreate, &object, &rows, &texture, nullptr);
    TELL("of nothing", cuTexObjectCreate, &object, nullptr, &texture, nullptr);
    TELL("nobody to tell", cuTexObjectCreate, nullptr, &words, &texture, nullptr);
    TELL("none", cuTexObjectDestroy, 0);
    OK(cuCtxSynchronize);
    EXPECT(out.a.holds(1));
}

TEST_CASE("odd calls: textures") {
    same_under_pressure("odd_textures");
}

BODY(odd_launches) {
    const Gpu gpu;
    const Out out;
    const CUfunction add = kernel("add");
    CUdeviceptr to = out.a.at();
    CUdeviceptr from = out.b.at();
    unsigned k = 1;
    unsigned n = 16;
    void* parameters[] = {&to, &from, &k, &n};
    struct {
        CUdeviceptr to;
        CUdeviceptr from;
        unsigned k;
        unsigned n;
    } block{to, from, k, n};
    std::size_t bytes = sizeof block;
    void* unknown[] = {reinterpret_cast<void*>(77), &block, CU_LAUNCH_PARAM_BUFFER_POINTER, &block,
                       CU_LAUNCH_PARAM_END};
    void* no_size[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_END};
    void* no_block[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    const auto with = [&](const std::string& what, void** given, void** more, unsigned blocks = 1,
                          unsigned threads = 32) {
        TELL(what, cuLaunchKernel, add, blocks, 1, 1, threads, 1, 1, 0, nullptr, given, more);
    };
    with("none", parameters, nullptr, 0);
    with("no threads", parameters, nullptr, 1, 0);
    with("too many threads", parameters, nullptr, 1, 4096);
    with("both kinds", parameters, extra);
    with("neither", nullptr, nullptr);
    with("an unknown tag", nullptr, unknown);
    with("no size", nullptr, no_size);
    with("no block", nullptr, no_block);
    bytes = kMost;
    with("too large a block", nullptr, extra);
    bytes = 1;
    with("too small a block", nullptr, extra);
    TELL("no kernel", cuLaunchKernel, nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
    TELL("no shape", cuLaunchKernelEx, nullptr, add, parameters, nullptr);
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    config.numAttrs = 3;
    TELL("attributes that are nowhere", cuLaunchKernelEx, &config, add, parameters, nullptr);
    TELL("nothing together", cuLaunchCooperativeKernelMultiDevice, nullptr, 2, 0);
    OK(cuCtxSynchronize);
    EXPECT(out.b.holds(2));
}

TEST_CASE("odd calls: launches") {
    same_under_pressure("odd_launches");
}
