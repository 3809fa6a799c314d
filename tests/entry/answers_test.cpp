// The same calls with the shim and without it, over the same driver: each gives the same answer.
#include <cstdio>
#include <functional>
#include <thread>

#include "tests/entry/graph_rig.h"
#include "tests/entry/odd.h"

using namespace rig;

namespace {

struct Extent {
    std::size_t offset;
    std::size_t bytes;
};
// Multiples of 4: the last to fit, the next, those that begin at the end, and far past it.
constexpr Extent kExtents[] = {
    {0, kOdd},         {0, kOdd + 4}, {kOdd - 8, 8}, {kOdd - 8, 12},    {kOdd, 4}, {kOdd + 16, 4},
    {0, kOdd + 20000}, {kOdd, 0},     {4, kOdd - 4}, {kOdd - 4, 30000}, {0, 4}};

std::string text_of(const Extent& extent) {
    return "[" + std::to_string(extent.offset) + ", +" + std::to_string(extent.bytes) + ")";
}

CUDA_MEMCPY3D box(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    CUDA_MEMCPY3D copy = copy_of(to, from);
    copy.WidthInBytes = bytes / 4;
    copy.Height = 2;
    copy.Depth = 2;
    return copy;
}

CUDA_MEMCPY2D rows(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes / 4;
    copy.Height = 4;
    return copy;
}

// Every form of copy, set and node, with `at` as one side, and a buffer that is large enough as the other.
void use(const std::string& what, CUdeviceptr at, std::size_t n, CUdeviceptr other, const Gpu& gpu) {
    static std::vector<std::uint8_t> host(2 * kOdd);
    const CUstream stream = CU_STREAM_PER_THREAD;
    TELL(what, cuMemcpy, at, other, n);
    TELL(what, cuMemcpy, other, at, n);
    TELL(what, cuMemcpyAsync, at, other, n, stream);
    TELL(what, cuMemcpyHtoD_v2, at, host.data(), n);
    TELL(what, cuMemcpyHtoDAsync_v2, at, host.data(), n, stream);
    TELL(what, cuMemcpyDtoH_v2, host.data(), at, n);
    TELL(what, cuMemcpyDtoHAsync_v2, host.data(), at, n, stream);
    TELL(what, cuMemcpyDtoD_v2, at, other, n);
    TELL(what, cuMemcpyDtoD_v2, other, at, n);
    TELL(what, cuMemcpyDtoDAsync_v2, other, at, n, stream);
    TELL(what, cuMemcpyPeer, other, gpu.context, at, gpu.context, n);
    TELL(what, cuMemsetD8_v2, at, 1, n);
    TELL(what, cuMemsetD16_v2, at, 1, n / 2);
    TELL(what, cuMemsetD32_v2, at, 1, n / 4);
    TELL(what, cuMemsetD8Async, at, 1, n, stream);
    TELL(what, cuMemsetD32Async, at, 1, n / 4, stream);
    TELL(what, cuMemsetD2D8_v2, at, n / 4, 1, n / 4, 4);
    TELL(what, cuMemsetD2D16_v2, at, n / 4 * 2, 1, n / 4, 2);
    TELL(what, cuMemsetD2D32_v2, at, n, 1, n / 4, 1);
    TELL(what, cuMemsetD2D32Async, at, n, 1, n / 4, 1, stream);
    const CUDA_MEMCPY2D to_rows = rows(at, other, n);
    const CUDA_MEMCPY2D from_rows = rows(other, at, n);
    TELL(what, cuMemcpy2D_v2, &to_rows);
    TELL(what, cuMemcpy2DUnaligned_v2, &from_rows);
    TELL(what, cuMemcpy2DAsync_v2, &from_rows, stream);
    const CUDA_MEMCPY3D to_box = box(at, other, n);
    const CUDA_MEMCPY3D from_box = box(other, at, n);
    TELL(what, cuMemcpy3D_v2, &to_box);
    TELL(what, cuMemcpy3DAsync_v2, &from_box, stream);
    std::size_t sizes[] = {16, n};
    CUdeviceptr targets[] = {other + 2 * kOdd, other};
    CUdeviceptr sources[] = {other + 2 * kOdd + 64, at};
    std::size_t starts[] = {0};
    CUmemcpyAttributes in_order{};
    in_order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t failed = 7;
    TELL(what, cuMemcpyBatchAsync_v2, targets, sources, sizes, 2, &in_order, starts, 1, stream);
    TELL(what, cuMemcpyBatchAsync, targets, sources, sizes, 2, &in_order, starts, 1, &failed, stream);
    std::printf("%s failed: %zu\n", what.c_str(), failed);
    CUDA_MEMCPY3D_BATCH_OP boxes[2] = {};
    for (int i = 0; i < 2; ++i) {
        boxes[i].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        boxes[i].src.type = boxes[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        boxes[i].src.op.ptr.ptr = sources[i];
        boxes[i].dst.op.ptr.ptr = targets[i];
        boxes[i].extent = {sizes[i], 1, 1};
    }
    TELL(what, cuMemcpy3DBatchAsync_v2, 2, boxes, 0, stream);
    TELL(what, cuMemcpy3DBatchAsync, 2, boxes, &failed, 0, stream);
    std::printf("%s failed: %zu\n", what.c_str(), failed);
    OK(cuStreamSynchronize, stream);

    const CUgraph graph = new_graph();
    CUgraphNode node = nullptr;
    CUDA_MEMCPY3D copy = copy_of(at, other);
    copy.WidthInBytes = n;
    CUDA_MEMSET_NODE_PARAMS set = set_of(at, 1);
    set.width = n;
    TELL(what, cuGraphAddMemcpyNode, &node, graph, nullptr, 0, &copy, gpu.context);
    TELL(what, cuGraphAddMemsetNode, &node, graph, nullptr, 0, &set, gpu.context);
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    params.memcpy.copyParams = copy;
    params.memcpy.copyCtx = gpu.context;
    TELL(what, cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &params);
    const CUgraph other_graph = new_graph();
    CUDA_MEMCPY3D fits = copy_of(other, other + kOdd);
    fits.WidthInBytes = 16;
    const CUgraphNode copy_node = add_copy(other_graph, fits, gpu);
    CUDA_MEMSET_NODE_PARAMS small = set_of(other, 1);
    small.width = 16;
    const CUgraphNode set_node = add_set(other_graph, small, gpu);
    const CUgraphExec exec = instantiate(other_graph);
    TELL(what, cuGraphMemcpyNodeSetParams, copy_node, &copy);
    TELL(what, cuGraphNodeSetParams, copy_node, &params);
    TELL(what, cuGraphMemsetNodeSetParams, set_node, &set);
    TELL(what, cuGraphExecMemcpyNodeSetParams, exec, copy_node, &copy, gpu.context);
    TELL(what, cuGraphExecNodeSetParams, exec, copy_node, &params);
    TELL(what, cuGraphExecMemsetNodeSetParams, exec, set_node, &set, gpu.context);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    OK(cuGraphDestroy, other_graph);

    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    TELL(what + " captured", cuMemcpyDtoDAsync_v2, other, at, n, stream);
    TELL(what + " captured", cuMemsetD8Async, at, 1, n, stream);
    CUgraph captured = nullptr;
    TELL(what + " captured", cuStreamEndCapture, stream, &captured);
}

void ask(const std::string& what, CUdeviceptr begin, CUdeviceptr at) {
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    TELL(what, cuMemGetAddressRange_v2, &base, &bytes, at);
    std::printf("%s: begins %lld before, of %zu\n", what.c_str(),
                base ? static_cast<long long>(begin - base) : -1, bytes);
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MAPPED,
                                   CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
                                   CU_POINTER_ATTRIBUTE_ACCESS_FLAGS};
    constexpr unsigned kAsked = std::size(which);
    const auto text = [&](CUpointer_attribute attribute, std::uint64_t value) {
        switch (attribute) {
            case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
                return value == 0 ? std::string("0") : std::to_string(value - begin) + " from its begin";
            case CU_POINTER_ATTRIBUTE_CONTEXT:
            case CU_POINTER_ATTRIBUTE_BUFFER_ID:
                return std::string(value == 0 ? "none" : "some");
            default:
                return std::to_string(value);
        }
    };
    std::uint64_t values[kAsked] = {};
    void* data[kAsked];
    for (unsigned i = 0; i < kAsked; ++i) {
        const std::string attribute = what + " attribute " + std::to_string(which[i]);
        TELL(attribute, cuPointerGetAttribute, &values[i], which[i], at);
        std::printf("%s is %s\n", attribute.c_str(), text(which[i], values[i]).c_str());
        values[i] = 0;
        data[i] = &values[i];
    }
    TELL(what, cuPointerGetAttributes, kAsked, which, data, at);
    for (unsigned i = 0; i < kAsked; ++i)
        std::printf("%s attribute %d is %s\n", what.c_str(), which[i], text(which[i], values[i]).c_str());
}

}  // namespace

BODY(answers_at_the_end) {
    const Gpu gpu;
    const Buffer a(kOdd);
    const Buffer other(3 * kOdd);
    for (const Extent& extent : kExtents)
        use(text_of(extent), a.at(extent.offset), extent.bytes, other.at(), gpu);
}

TEST_CASE("answers: copies, sets and nodes up to the end of a buffer and past it") {
    same_both_ways("answers_at_the_end");
}

BODY(answers_about_addresses) {
    const Gpu gpu;
    const Buffer a(kOdd);
    for (const std::size_t offset : {std::size_t{0}, std::size_t{5}, kOdd - 1, kOdd, kOdd + 1, kOdd + 20000})
        ask(std::to_string(offset), a.at(), a.at(offset));
}

TEST_CASE("answers: what is known of addresses up to the end of a buffer and past it") {
    same_both_ways("answers_about_addresses");
}

BODY(answers_to_hints) {
    const Gpu gpu;
    const Buffer a(kOdd, 1);
    CUdeviceptr managed = 0;
    OK(cuMemAllocManaged, &managed, kOdd, CU_MEM_ATTACH_GLOBAL);
    for (CUdeviceptr at : {a.at(), managed}) {
        const std::string what = at == managed ? "managed" : "of its own";
        CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
        CUstream stream = CU_STREAM_PER_THREAD;
        std::size_t bytes = kOdd;
        std::size_t start = 0;
        TELL(what, cuMemAdvise, at, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu.device);
        TELL(what, cuMemAdvise_v2, at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here);
        TELL(what, cuMemPrefetchAsync, at, bytes, gpu.device, stream);
        TELL(what, cuMemPrefetchAsync_v2, at, bytes, here, 0, stream);
        TELL(what, cuMemPrefetchBatchAsync, &at, &bytes, 1, &here, &start, 1, 0, stream);
        TELL(what, cuMemDiscardAndPrefetchBatchAsync, &at, &bytes, 1, &here, &start, 1, 0, stream);
        TELL(what, cuMemDiscardBatchAsync, &at, &bytes, 1, 0, stream);
        int value = 7;
        TELL(what, cuMemRangeGetAttribute, &value, sizeof value, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at,
             bytes);
        void* data = &value;
        std::size_t size = sizeof value;
        CUmem_range_attribute which = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        TELL(what, cuMemRangeGetAttributes, &data, &size, &which, 1, at, bytes);
    }
    EXPECT(a.holds(1));
}

TEST_CASE("answers: hints about memory, managed by the driver or not") {
    same_both_ways("answers_to_hints");
}

BODY(answers_while_capturing) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    CUdeviceptr buffer = 0;
    OK(cuMemAlloc_v2, &buffer, kOdd);
    CUdeviceptr made = 0;
    std::size_t pitch = 0;
    const std::pair<const char*, std::function<CUresult()>> calls[] = {
        {"cuMemAlloc", [&] { return CU(cuMemAlloc_v2)(&made, kOdd); }},
        {"cuMemAllocPitch", [&] { return CU(cuMemAllocPitch_v2)(&made, &pitch, 1000, 1000, 4); }},
        {"cuMemFree", [&] { return CU(cuMemFree_v2)(buffer); }},
        {"cuMemFree past its begin", [&] { return CU(cuMemFree_v2)(buffer + 4); }},
        {"cuMemAllocAsync", [&] { return CU(cuMemAllocAsync)(&made, kOdd, other); }},
        {"cuMemFreeAsync", [&] { return CU(cuMemFreeAsync)(buffer, other); }},
        {"cuMemFreeAsync captured", [&] { return CU(cuMemFreeAsync)(buffer, stream); }},
        {"cuMemcpyDtoD", [&] { return CU(cuMemcpyDtoD_v2)(buffer, buffer + 1024, 16); }},
        {"cuMemsetD8", [&] { return CU(cuMemsetD8_v2)(buffer, 1, 16); }},
    };
    for (const CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                           CU_STREAM_CAPTURE_MODE_RELAXED}) {
        for (const bool elsewhere : {false, true}) {
            for (const bool relaxed : {false, true}) {
                for (const auto& [name, call] : calls) {
                    const std::string what = std::string(name) + ", mode " + std::to_string(mode) +
                                             (elsewhere ? ", another thread" : "") +
                                             (relaxed ? ", relaxed" : "");
                    OK(cuStreamBeginCapture_v2, stream, mode);
                    made = 0;
                    const auto answer = [&, &call = call] {
                        OK(cuCtxSetCurrent, gpu.context);
                        CUstreamCaptureMode exchanged = CU_STREAM_CAPTURE_MODE_RELAXED;
                        if (relaxed) OK(cuThreadExchangeStreamCaptureMode, &exchanged);
                        const CUresult result = call();
                        tell(what, result);
                        if (relaxed) OK(cuThreadExchangeStreamCaptureMode, &exchanged);
                        return result;
                    };
                    CUresult result = CUDA_SUCCESS;
                    if (elsewhere) {
                        std::thread([&] { result = answer(); }).join();
                    } else {
                        result = answer();
                    }
                    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
                    OK(cuStreamIsCapturing, stream, &status);
                    std::printf("%s: capture is %d\n", what.c_str(), status);
                    CUgraph graph = nullptr;
                    TELL(what, cuStreamEndCapture, stream, &graph);
                    if (graph) OK(cuGraphDestroy, graph);
                    OK(cuStreamSynchronize, other);
                    if (made) OK(cuMemFree_v2, made);
                    if (what.starts_with("cuMemFree") && result == CUDA_SUCCESS)
                        OK(cuMemAlloc_v2, &buffer, kOdd);
                }
            }
        }
    }
}

TEST_CASE("answers: allocations and frees while work is captured") {
    same_both_ways("answers_while_capturing", {{"SIMCUDA_MEMORY", "16M"}});
}
