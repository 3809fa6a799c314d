// Calls that are asked for nothing, too much, or the impossible, while memory is out: each gives the answer
// it gives without the shim.
#include <cstring>
#include <limits>

#include "tests/entry/both_ways.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Not a multiple of anything memory is mapped in.
constexpr std::size_t kOdd = kBuffer + 1000;
constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

void tell_number(const std::string& what, std::size_t value) {
    std::printf("%s: %zu\n", what.c_str(), value);
}

// Of memory that is out.
struct Out {
    Buffer a{kOdd, 1};
    Buffer b{kBuffer, 2};
    Crowd crowd;
    Out() {
        for (int i = 0; i < 3; ++i) crowd.press();
    }
};

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

BODY(odd_questions) {
    const Gpu gpu;
    const Out out;
    const Buffer in(kOdd, 3);
    const auto ask = [&](const std::string& who, CUdeviceptr at) {
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        for (int which = 0; which < 24; ++which) {
            const auto attribute = static_cast<CUpointer_attribute>(which);
            // Of managed memory that one is another, and identities are anybody's.
            const bool told = attribute != CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE &&
                              attribute != CU_POINTER_ATTRIBUTE_BUFFER_ID &&
                              attribute != CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
            std::uint64_t value = 0;
            const std::string what = who + " attribute " + std::to_string(which);
            TELL(what, cuPointerGetAttribute, &value, attribute, at);
            tell_number(what, value < 100 && told ? value : 100);
            value = 0;
            void* data = &value;
            CUpointer_attribute wanted = attribute;
            TELL(what, cuPointerGetAttributes, 1, &wanted, &data, at);
            tell_number(what, value < 100 && told ? value : 100);
        }
        TELL(who, cuPointerGetAttribute, nullptr, CU_POINTER_ATTRIBUTE_CONTEXT, at);
        TELL(who, cuPointerGetAttributes, 0, nullptr, nullptr, at);
        TELL(who, cuMemGetAddressRange_v2, nullptr, nullptr, at);
        TELL(who, cuMemGetAddressRange_v2, &base, nullptr, at);
        TELL(who, cuMemGetAddressRange_v2, nullptr, &bytes, at);
        const unsigned on = 1;
        TELL(who, cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_CONTEXT, at);
        TELL(who, cuPointerSetAttribute, nullptr, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at);
        auto* const pointer = reinterpret_cast<void*>(at);
        CUdeviceptr device = 0;
        unsigned flags = 0;
        TELL(who, cuMemHostGetDevicePointer_v2, &device, pointer, 0);
        TELL(who, cuMemHostGetFlags, &flags, pointer);
        TELL(who, cuMemHostUnregister, pointer);
        TELL(who, cuMemFreeHost, pointer);
        TELL(who, cuMemUnmap, at, kGranule);
        TELL(who, cuMemAddressFree, at, kGranule);
        CUmemGenericAllocationHandle handle = 0;
        TELL(who, cuMemRetainAllocationHandle, &handle, pointer);
        unsigned long long access = 0;
        CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
        TELL(who, cuMemGetAccess, &access, &here, at);
        const CUmemAccessDesc desc{here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        TELL(who, cuMemSetAccess, at, kGranule, &desc, 1);
        TELL(who, cuStreamAttachMemAsync, CU_STREAM_PER_THREAD, at, 0, CU_MEM_ATTACH_GLOBAL);
        TELL(who, cuMemAdvise_v2, at, kBuffer, CU_MEM_ADVISE_SET_READ_MOSTLY, here);
        TELL(who, cuMemPrefetchAsync_v2, at, kBuffer, here, 0, CU_STREAM_PER_THREAD);
        int value = 7;
        TELL(who, cuMemRangeGetAttribute, &value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at,
             kBuffer);
    };
    ask("out", out.a.at());
    ask("in the middle of what is out", out.a.at(kOdd / 2));
    ask("past the end of what is out", out.a.at(kOdd));
    ask("in", in.at());
    CUdeviceptr freed = 0;
    OK(cuMemAlloc_v2, &freed, kOdd);
    OK(cuMemFree_v2, freed);
    ask("freed", freed);
    OK(cuCtxSetCurrent, nullptr);
    ask("without a context, out", out.a.at());
    OK(cuCtxSetCurrent, gpu.context);
    EXPECT(out.a.holds(1));
    EXPECT(in.holds(3));
}

TEST_CASE("odd calls: questions about memory, and what is done to memory of another kind") {
    same_under_pressure("odd_questions");
}

BODY(odd_frees) {
    const Gpu gpu;
    const Out out;
    const CUstream stream = new_stream();
    CUdeviceptr made = 0;
    for (const std::size_t bytes : {kMost, kMost - 4096, std::size_t{1} << 63, std::size_t{1} << 48}) {
        const std::string what = std::to_string(bytes);
        TELL(what, cuMemAlloc_v2, &made, bytes);
        TELL(what, cuMemAllocAsync, &made, bytes, stream);
        std::size_t pitch = 0;
        TELL(what, cuMemAllocPitch_v2, &made, &pitch, bytes, 1, 4);
        TELL(what, cuMemAllocPitch_v2, &made, &pitch, 1, bytes, 4);
    }
    std::size_t pitch = 0;
    TELL("nothing", cuMemAlloc_v2, &made, 0);
    TELL("nothing", cuMemAllocAsync, &made, 0, stream);
    TELL("nowhere", cuMemAlloc_v2, nullptr, kBuffer);
    TELL("nowhere", cuMemAllocAsync, nullptr, kBuffer, stream);
    TELL("nowhere", cuMemAllocPitch_v2, nullptr, &pitch, 1000, 1000, 4);
    TELL("no pitch", cuMemAllocPitch_v2, &made, nullptr, 1000, 1000, 4);
    TELL("elements of 5", cuMemAllocPitch_v2, &made, &pitch, 1000, 1000, 5);
    TELL("no rows", cuMemAllocPitch_v2, &made, &pitch, 1000, 0, 4);
    TELL("nothing", cuMemFree_v2, 0);
    TELL("nothing", cuMemFreeAsync, 0, stream);
    TELL("in the middle", cuMemFree_v2, out.a.at(16));
    TELL("in the middle", cuMemFreeAsync, out.a.at(16), stream);
    TELL("past the end", cuMemFree_v2, out.a.at(kOdd));
    for (const bool asynchronous : {false, true}) {
        OK(cuMemAlloc_v2, &made, kOdd);
        OK(cuMemFree_v2, made);
        TELL("twice", cuMemFree_v2, made);
        TELL("twice", cuMemFreeAsync, made, stream);
        OK(cuMemAllocAsync, &made, kOdd, stream);
        OK(cuMemFreeAsync, made, stream);
        if (asynchronous) {
            TELL("asynchronously twice", cuMemFreeAsync, made, stream);
        } else {
            TELL("asynchronously and again", cuMemFree_v2, made);
        }
        OK(cuStreamSynchronize, stream);
    }
    const CUstream gone = new_stream();
    OK(cuStreamDestroy_v2, gone);
    OK(cuMemAlloc_v2, &made, kOdd);
    OK(cuMemsetD8_v2, made, 7, kOdd);
    TELL("in a stream that is gone", cuMemFreeAsync, made, gone);
    std::uint8_t byte = 0;
    TELL("it is still there", cuMemcpyDtoH_v2, &byte, made, 1);
    tell_number("and has", byte);
    TELL("in a stream that is gone", cuMemAllocAsync, &made, kOdd, gone);
    TELL("in a stream that is gone", cuMemsetD8Async, out.a.at(), 1, 16, gone);
    TELL("in a stream that is gone", cuMemcpyDtoDAsync_v2, out.a.at(), out.b.at(), 16, gone);
    TELL("in a stream that is gone", cuStreamWriteValue32_v2, gone, out.a.at(), 1, 0);
    tell("a kernel in a stream that is gone", launch("add", 16, gone, out.a.at(), out.b.at(), 1u, 16u));
    EXPECT(out.a.holds(1));
    EXPECT(out.b.holds(2));
}

TEST_CASE("odd calls: allocations and frees") {
    same_under_pressure("odd_frees");
}

// Addresses are unified: what is called the host's may be the GPU's.
BODY(odd_sides) {
    const Gpu gpu;
    const Out out;
    const Buffer c(kBuffer, 3);
    const CUstream stream = new_stream();
    auto* const a = reinterpret_cast<void*>(out.a.at());
    auto* const b = reinterpret_cast<void*>(out.b.at());
    const auto press = [&] {
        CUdeviceptr more[12] = {};
        for (CUdeviceptr& each : more) OK(cuMemAlloc_v2, &each, kBuffer);
        for (int i = 0; i < 3; ++i) {
            for (const CUdeviceptr each : more) OK(cuMemsetD8_v2, each, 1, kBuffer);
        }
        OK(cuStreamSynchronize, nullptr);
        for (const CUdeviceptr each : more) OK(cuMemFree_v2, each);
    };
    const auto check = [&](const std::string& what, std::uint32_t seed) {
        OK(cuCtxSynchronize);
        std::printf("%s: %d\n", what.c_str(), c.holds(seed));
        press();
    };
    TELL("from the GPU", cuMemcpyHtoD_v2, c.at(), b, kBuffer);
    check("linear", 2);
    TELL("from the GPU", cuMemcpyHtoDAsync_v2, c.at(), a, kBuffer, stream);
    check("linear, asynchronous", 1);
    TELL("to the GPU", cuMemcpyDtoH_v2, reinterpret_cast<void*>(c.at()), out.b.at(), kBuffer);
    check("linear", 2);
    TELL("to the GPU", cuMemcpyDtoHAsync_v2, reinterpret_cast<void*>(c.at()), out.a.at(), kBuffer, stream);
    check("linear, asynchronous", 1);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = b;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = c.at();
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = kBuffer / 8;
    rows.Height = 8;
    TELL("rows from the GPU", cuMemcpy2D_v2, &rows);
    check("rows", 2);
    rows.srcHost = a;
    TELL("rows from the GPU", cuMemcpy2DAsync_v2, &rows, stream);
    check("rows, asynchronous", 1);
    rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = out.b.at();
    rows.srcHost = nullptr;
    rows.dstMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstHost = reinterpret_cast<void*>(c.at());
    rows.dstDevice = 0;
    TELL("rows to the GPU", cuMemcpy2D_v2, &rows);
    check("rows", 2);
    const CUgraph graph = new_graph();
    CUDA_MEMCPY3D copy = copy_of(c.at(), 0);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = a;
    CUgraphNode node = nullptr;
    TELL("a node", cuGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy, gpu.context);
    const CUgraphExec exec = instantiate(graph);
    TELL("a node", cuGraphLaunch, exec, stream);
    check("node", 1);
    EXPECT(out.a.holds(1));
    EXPECT(out.b.holds(2));
}

TEST_CASE("odd calls: memory of the GPU that is called the host's") {
    same_under_pressure("odd_sides");
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
