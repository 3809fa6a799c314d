// Textures over managed memory: what they name stays on the device as long as they do.
#include <algorithm>
#include <span>

#include "tests/entry/gate.h"
#include "tests/entry/overlay/record.h"
#include "tests/entry/rig.h"

using namespace rig;

namespace {

CUDA_RESOURCE_DESC linear(const Buffer& buffer) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = buffer.at();
    resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT8;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = buffer.bytes();
    return resource;
}

CUDA_RESOURCE_DESC pitched(const Buffer& buffer) {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    auto& rows = resource.res.pitch2D;
    rows.devPtr = buffer.at();
    rows.format = CU_AD_FORMAT_UNSIGNED_INT8;
    rows.numChannels = 1;
    rows.width = rows.pitchInBytes = 4096;
    rows.height = buffer.bytes() / 4096;
    return resource;
}

}  // namespace

OVERLAY_TEST("textures: an object's buffer is on the device until the object is destroyed",
             "texture-objects") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    const CUDA_TEXTURE_DESC texture{};
    for (const CUDA_RESOURCE_DESC& resource : {linear(a), pitched(a)}) {
        crowd.evict(a);
        CUtexObject object = 0;
        OK(cuTexObjectCreate, &object, &resource, &texture, nullptr);
        for (int i = 0; i < 3; ++i) crowd.press();
        EXPECT(a.resident());
        OK(cuTexObjectDestroy, object);
        crowd.evict(a);
        EXPECT(a.holds(1));
    }
}

// ffmpeg's scale_cuda: made, used by one launch and destroyed, frame after frame, without waiting for the
// launch.
FAMILY_TEST("textures: the buffer of one that is destroyed stays until the work before that is done") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer unmanaged(8192);
    Crowd crowd;
    crowd.press();
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUDA_RESOURCE_DESC words = linear(a);
    words.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    const CUDA_TEXTURE_DESC texture{.flags = CU_TRSF_READ_AS_INTEGER};
    CUtexObject object = 0;
    OK(cuTexObjectCreate, &object, &words, &texture, nullptr);
    Gate gate;
    gate.hold_up(stream);
    const unsigned n = 8192 / 4;
    EXPECT(launch("fetch", n, stream, unmanaged.at(), object, n) == CUDA_SUCCESS);
    OK(cuTexObjectDestroy, object);
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(a.resident());
    gate.open();
    OK(cuStreamSynchronize, stream);
    const auto all = pattern(kBuffer, 1);
    EXPECT(std::ranges::equal(unmanaged.read(), std::span(all).first(8192)));
    OK(cuStreamDestroy_v2, stream);
    crowd.evict(a);
    EXPECT(a.holds(1));
}

OVERLAY_TEST("textures: one over more than the GPU holds is out of memory, and keeps nothing") {
    const Gpu gpu;
    const Buffer large(6 * kMiB, 1);
    const CUDA_RESOURCE_DESC resource = linear(large);
    const CUDA_TEXTURE_DESC texture{};
    CUtexObject object = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuTexObjectCreate, &object, &resource, &texture, nullptr);
    const Buffer a(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(2));
    EXPECT(large.holds(1));
}

OVERLAY_TEST("textures: a reference keeps what it was last bound to", "texture-references") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    CUtexref reference = nullptr;
    OK(cuTexRefCreate, &reference);
    std::size_t offset = 0;
    crowd.evict(a);
    OK(cuTexRefSetAddress_v2, &offset, reference, a.at(), kBuffer);
    crowd.press();
    EXPECT(a.resident());
    const CUDA_ARRAY_DESCRIPTOR rows{4096, kBuffer / 4096, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    crowd.evict(b);
    OK(cuTexRefSetAddress2D_v3, reference, &rows, b.at(), 4096);
    crowd.press();
    EXPECT(b.resident());
    crowd.evict(a);
    OK(cuTexRefSetAddress2D_v2, reference, &rows, a.at(), 4096);
    crowd.press();
    EXPECT(a.resident());
    crowd.evict(b);
    OK(cuTexRefDestroy, reference);
    crowd.evict(a);
}

OVERLAY_TEST("textures: a reference bound to an array lets go of what it was bound to",
             "texture-references-let-go") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    CUtexref reference = nullptr;
    OK(cuTexRefCreate, &reference);
    std::size_t offset = 0;
    const auto check = [&](auto&& bind, auto array) {
        crowd.evict(a);
        OK(cuTexRefSetAddress_v2, &offset, reference, a.at(), kBuffer);
        EXPECT(bind(nullptr) == CUDA_ERROR_INVALID_VALUE);
        for (int i = 0; i < 3; ++i) crowd.press();
        EXPECT(a.resident());
        EXPECT(bind(array) == CUDA_SUCCESS);
        crowd.evict(a);
        EXPECT(a.holds(1));
    };
    int array = 0;  // stands for one
    check([&](CUarray to) { return CU(cuTexRefSetArray)(reference, to, CU_TRSA_OVERRIDE_FORMAT); },
          reinterpret_cast<CUarray>(&array));
    check(
        [&](CUmipmappedArray to) {
            return CU(cuTexRefSetMipmappedArray)(reference, to, CU_TRSA_OVERRIDE_FORMAT);
        },
        reinterpret_cast<CUmipmappedArray>(&array));
}

OVERLAY_TEST("textures: one that the driver refuses keeps nothing") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    const CUDA_TEXTURE_DESC texture{};
    CUDA_RESOURCE_DESC resource = linear(a);
    resource.res.linear.numChannels = 3;
    CUtexObject object = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectCreate, &object, &resource, &texture, nullptr);
    crowd.evict(a);
    EXPECT(a.holds(1));
}

// Another thread makes one as soon as the driver has let the handle go.
OVERLAY_TEST("textures: one that is given the handle of one that is being destroyed keeps its buffer") {
    const Gpu gpu;
    static const Buffer* next = nullptr;
    static CUtexObject made = 0;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    next = &b;
    Crowd crowd;
    const CUDA_TEXTURE_DESC texture{};
    const CUDA_RESOURCE_DESC resource = linear(a);
    CUtexObject object = 0;
    OK(cuTexObjectCreate, &object, &resource, &texture, nullptr);
    overlay::record().handle_free = [] {
        const CUDA_TEXTURE_DESC plain{};
        const CUDA_RESOURCE_DESC other = linear(*next);
        OK(cuTexObjectCreate, &made, &other, &plain, nullptr);
    };
    OK(cuTexObjectDestroy, object);
    EXPECT(made == object);
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(b.resident());
    crowd.evict(a);
    OK(cuTexObjectDestroy, made);
    crowd.evict(b);
    EXPECT(a.holds(1));
    EXPECT(b.holds(2));
}
