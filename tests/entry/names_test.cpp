// Which buffers a launch names by pointers that are not where, or not what, one looks for first.
#include <cstring>

#include "tests/entry/graph_rig.h"

using namespace rig;

namespace {

// Adds 5 to `in`, which the kernel is given as `named`, while it is out.
template <typename Named>
void add_while_out(const char* name, Crowd& crowd, const Buffer& in, const Named& named) {
    const Buffer out(kBuffer, 9);
    crowd.evict(in);
    EXPECT(launch(name, kWords, nullptr, out.at(), named, 5u, kWords) == CUDA_SUCCESS);
    EXPECT(in.resident());
    EXPECT(out.read() == plus(in.read(), 5));
}

}  // namespace

FAMILY_TEST("names: a pointer to just before the lowest buffer, and to just past the highest") {
    const Gpu gpu;
    const Buffer lowest(kBuffer, 1);
    Crowd crowd;
    const Buffer highest(kBuffer, 2);
    add_while_out("add_just_after", crowd, lowest, lowest.at() - 4);
    add_while_out("add_far_after", crowd, lowest, lowest.at() - 49152);
    add_while_out("add_before", crowd, highest, highest.at(kBuffer));
}

FAMILY_TEST("names: a table holds a pointer to just before the lowest buffer") {
    const Gpu gpu;
    const Buffer lowest(kBuffer, 1);
    Crowd crowd;
    const Buffer table(kBuffer, 3);
    const CUdeviceptr before = lowest.at() - 4;
    OK(cuMemcpyHtoD_v2, table.at(), &before, sizeof before);
    const Buffer out(kBuffer, 9);
    crowd.evict(lowest);
    EXPECT(launch("add", kWords, nullptr, out.at(), table.at(), 0u, kWords) == CUDA_SUCCESS);
    EXPECT(lowest.resident());
    OK(cuCtxSynchronize);
}

FAMILY_TEST("names: a table that was freed holds nothing, whatever its memory is next") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    const Buffer out(kBuffer, 9);
    CUdeviceptr table = 0, next = 0;
    OK(cuMemAlloc_v2, &table, kBuffer);
    const CUdeviceptr pointer = a.at();
    OK(cuMemcpyHtoD_v2, table, &pointer, sizeof pointer);
    OK(cuMemFree_v2, table);
    OK(cuMemAlloc_v2, &next, kBuffer);
    EXPECT(next == table);
    crowd.evict(a);
    EXPECT(launch("add", kWords, nullptr, out.at(), next, 0u, kWords) == CUDA_SUCCESS);
    EXPECT(!a.resident());
    OK(cuCtxSynchronize);
    OK(cuMemFree_v2, next);
}

FAMILY_TEST("names: a pointer at any byte of a packed struct") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    struct [[gnu::packed]] {
        char other[3] = {1, 2, 3};
        CUdeviceptr pointer = 0;
        char rest[5] = {4, 5, 6, 7, 8};
    } packed;
    packed.pointer = a.at();
    add_while_out("add_packed", crowd, a, packed);
}
