// Memory that the app maps itself, and that the host has written addresses of managed memory into: a kernel
// that is given it reaches what they name, wherever it is mapped and whose it has become.
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
