// Memory that the program maps itself, and that the host has written addresses of managed memory into: a
// kernel that is given it reaches what they name, wherever it is mapped and whose it has become.
#include "tests/entry/own.h"

using namespace rig;

namespace {

void write_address(CUdeviceptr to, const Buffer& of) {
    const CUdeviceptr table[] = {of.at()};
    OK(cuMemcpyHtoD_v2, to, table, sizeof table);
    OK(cuCtxSynchronize);
}

// Whether a kernel that is given the memory at `address` alone has `buffer` brought in, which was out.
bool leads_to(CUdeviceptr address, const Buffer& buffer, Crowd& crowd) {
    const Buffer out(kBuffer, 3);
    crowd.evict(buffer);
    copy_by_kernel(out.at(), address);
    OK(cuCtxSynchronize);
    return buffer.resident();
}

}  // namespace

// The second is mapped where the first was, and is known by the address it holds when it follows.
FAMILY_TEST(
    "own mappings: addresses that a handle holds go with it, also where others take its place first") {
    const Gpu gpu;
    Crowd crowd;
    const Buffer a(kBuffer, 1);
    const CUdeviceptr p = reserve(3 * kBuffer);
    const auto first = create(kBuffer);
    const auto second = create(kBuffer);
    map(p, kBuffer, first);
    map(p + kBuffer, kBuffer, second);
    const CUdeviceptr table[] = {a.at()};
    OK(cuMemcpyHtoD_v2, p + kBuffer, table, sizeof table);
    OK(cuCtxSynchronize);
    OK(cuMemUnmap, p, 2 * kBuffer);
    map(p + kBuffer, kBuffer, first);
    write(p + kBuffer, kBuffer, 2);
    map(p + 2 * kBuffer, kBuffer, second);
    crowd.evict(a);
    const Buffer out(kBuffer, 3);
    crowd.evict(a);
    copy_by_kernel(out.at(), p + 2 * kBuffer);
    EXPECT(a.resident());
    OK(cuCtxSynchronize);
    OK(cuMemUnmap, p + kBuffer, 2 * kBuffer);
    OK(cuMemRelease, first);
    OK(cuMemRelease, second);
}

// The handle is the driver's, alone in its reservation or beside a managed one.
BODY(own_table_below_threshold) {
    constexpr std::size_t kGranule = 64 << 10;
    const Gpu gpu;
    Crowd crowd;
    for (const std::size_t beside : {std::size_t{0}, kBuffer}) {
        const Buffer a(kBuffer, 1);
        const CUdeviceptr p = reserve(kGranule + beside);
        const CUdeviceptr q = reserve(kGranule + beside);
        const auto small = create(kGranule);
        const auto large = beside > 0 ? create(beside) : 0;
        const auto map_both = [&](CUdeviceptr at) {
            map(at, kGranule, small);
            if (beside > 0) map(at + kGranule, beside, large);
        };
        map_both(p);
        const CUdeviceptr table[] = {a.at()};
        OK(cuMemcpyHtoD_v2, p + 16, table, sizeof table);
        OK(cuCtxSynchronize);
        OK(cuMemUnmap, p, kGranule + beside);
        map_both(q);
        crowd.evict(a);
        const Buffer out(kBuffer, 3);
        crowd.evict(a);
        copy_by_kernel(out.at(), q, kGranule / 4);
        EXPECT(a.resident());
        OK(cuCtxSynchronize);
        OK(cuMemUnmap, q, kGranule + beside);
        OK(cuMemRelease, small);
        if (beside > 0) OK(cuMemRelease, large);
    }
}

TEST_CASE("own mappings: addresses that a handle below the threshold holds go with it") {
    run_both("own_table_below_threshold", Driver::Simulated, {{"LMS_THRESHOLD", "128K"}});
}

FAMILY_TEST(
    "own mappings: addresses that a handle holds are there when it is the driver's, wherever it is mapped "
    "then") {
    const Gpu gpu;
    Crowd crowd;
    const Buffer a(kBuffer, 1);
    const CUdeviceptr p = reserve(kBuffer);
    const CUdeviceptr q = reserve(kBuffer);
    const auto handle = create_shareable(kBuffer);
    map(p, kBuffer, handle);
    write_address(p, a);
    EXPECT(leads_to(p, a, crowd));
    EXPECT(share(handle) == CUDA_SUCCESS);
    EXPECT(leads_to(p, a, crowd));
    OK(cuMemUnmap, p, kBuffer);
    map(q, kBuffer, handle);
    EXPECT(leads_to(q, a, crowd));
    // A second mapping of it.
    map(p, kBuffer, handle);
    EXPECT(leads_to(p, a, crowd));
    write(p, kBuffer, 7);
    EXPECT(!leads_to(p, a, crowd));
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemUnmap, q, kBuffer);
    OK(cuMemRelease, handle);
}

FAMILY_TEST("own mappings: addresses that a handle holds are there when it becomes the driver's unmapped") {
    const Gpu gpu;
    Crowd crowd;
    const Buffer a(kBuffer, 1);
    const CUdeviceptr p = reserve(kBuffer);
    const auto handle = create_shareable(kBuffer);
    map(p, kBuffer, handle);
    write_address(p, a);
    OK(cuMemUnmap, p, kBuffer);
    EXPECT(share(handle) == CUDA_SUCCESS);
    map(p, kBuffer, handle);
    EXPECT(leads_to(p, a, crowd));
    OK(cuMemUnmap, p, kBuffer);
    OK(cuMemRelease, handle);
}

namespace {

// Of a kernel that copies a buffer's words.
CUgraphExec graph_of_copy(CUdeviceptr to, CUdeviceptr from) {
    std::uint32_t zero = 0;
    std::uint32_t words = kWords;
    void* arguments[] = {&to, &from, &zero, &words};
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernel("add");
    params.gridDimX = words / 256;
    params.blockDimX = 256;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    CUgraph graph = nullptr;
    OK(cuGraphCreate, &graph, 0);
    CUgraphNode node = nullptr;
    OK(cuGraphAddKernelNode_v2, &node, graph, nullptr, 0, &params);
    CUgraphExec exec = nullptr;
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    return exec;
}

void check_named_before() {
    const CUdeviceptr p = reserve(kBuffer);
    const CUdeviceptr q = reserve(kBuffer);
    const CUgraphExec exec = graph_of_copy(q, p);
    CUdeviceptr table = 0;
    OK(cuMemAlloc_v2, &table, 4096);
    OK(cuMemcpyHtoD_v2, table, &q, sizeof q);
    OK(cuCtxSynchronize);
    const auto from = create(kBuffer);
    const auto to = create(kBuffer);
    map(p, kBuffer, from);
    map(q, kBuffer, to);
    write(p, kBuffer, 1);
    write(q, kBuffer, 2);
    const Buffer out(kBuffer, 3);
    Crowd crowd;
    evict(crowd, p, kBuffer);
    evict(crowd, q, kBuffer);
    copy_by_kernel(out.at(), table, 16);
    OK(cuCtxSynchronize);
    EXPECT(on_device(q, kBuffer));
    OK(cuGraphLaunch, exec, nullptr);
    OK(cuCtxSynchronize);
    EXPECT(on_device(p, kBuffer));
    // What it writes goes out with that, also where nothing seems to have.
    evict(crowd, q, kBuffer);
    copy_by_kernel(out.at(), q);
    EXPECT(out.holds(1));
    write(p, kBuffer, 4);
    OK(cuGraphLaunch, exec, nullptr);
    OK(cuCtxSynchronize);
    evict(crowd, q, kBuffer);
    EXPECT(reads(q, kBuffer, 4));
}

}  // namespace

FAMILY_TEST("own mappings: graphs and tables may name them before anything is mapped there") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    check_named_before();
}

FAMILY_TEST("own mappings: graphs and tables may name them before there is any managed memory") {
    const Gpu gpu;
    check_named_before();
}
