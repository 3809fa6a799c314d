// What is asked about memory that is out, how it is freed, and what its addresses may be called: the answers
// are those without the shim.
#include <limits>

#include "tests/entry/graph_rig.h"
#include "tests/entry/odd.h"

using namespace rig;

namespace {

constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max();

}  // namespace

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
            // Not all of it is written: programs have variables there as small as the answer.
            constexpr std::uint64_t kUnwritten = 0xAAAAAAAAAAAAAAAA;
            std::uint64_t value = kUnwritten;
            const std::string what = who + " attribute " + std::to_string(which);
            const auto tell_value = [&] {
                const bool is_short = value >> 32 == kUnwritten >> 32;
                if (is_short) value &= UINT32_MAX;
                tell_number(what, value < 100 && told ? value : 100);
                tell_number(what + " beyond 4 bytes", !is_short);
            };
            TELL(what, cuPointerGetAttribute, &value, attribute, at);
            tell_value();
            value = kUnwritten;
            void* data = &value;
            CUpointer_attribute wanted = attribute;
            TELL(what, cuPointerGetAttributes, 1, &wanted, &data, at);
            tell_value();
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
    const unsigned on = 1;
    TELL("past the end", cuPointerSetAttribute, &on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, out.a.at(kOdd));
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
    for (const std::size_t bytes :
         {kMostBytes, kMostBytes - 4096, std::size_t{1} << 63, std::size_t{1} << 48}) {
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
    Out out;
    const Buffer c(kBuffer, 3);
    const CUstream stream = new_stream();
    auto* const a = reinterpret_cast<void*>(out.a.at());
    auto* const b = reinterpret_cast<void*>(out.b.at());
    const auto check = [&](const std::string& what, std::uint32_t seed) {
        OK(cuCtxSynchronize);
        std::printf("%s: %d\n", what.c_str(), c.holds(seed));
        for (int i = 0; i < 3; ++i) out.crowd.press();
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
