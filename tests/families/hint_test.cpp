// Prefetches, advice, discards and range attributes: hints on managed memory, passed on for the driver's own.
#include <dlfcn.h>

#include <cstdlib>

#include "tests/families/overlay/record.h"
#include "tests/families/rig.h"

using namespace rig;

namespace {

const overlay::Record& record() {
    static const auto* const found = static_cast<const overlay::Record*>(
        dlsym(dlopen(std::getenv("LMS_DRIVER"), RTLD_NOW | RTLD_LOCAL), overlay::kRecordSymbol));
    return *found;
}

CUdeviceptr driver_managed(std::size_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAllocManaged, &address, bytes, CU_MEM_ATTACH_GLOBAL);
    return address;
}

constexpr CUmemLocation kDevice{CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation kHost{CU_MEM_LOCATION_TYPE_HOST, 0};

}  // namespace

FAMILY_TEST("hints: a prefetch to the GPU brings in, one to the host is taken, contents stay") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    const auto brings_in = [&](auto&& prefetch) {
        crowd.evict(a);
        prefetch();
        OK(cuCtxSynchronize);
        EXPECT(a.resident());
    };
    brings_in([&] { OK(cuMemPrefetchAsync, a.at(), kBuffer, gpu.device, nullptr); });
    brings_in([&] { OK(cuMemPrefetchAsync_ptsz, a.at(), kBuffer, gpu.device, nullptr); });
    brings_in([&] { OK(cuMemPrefetchAsync_v2, a.at(), kBuffer, kDevice, 0, nullptr); });
    brings_in([&] { OK(cuMemPrefetchAsync_v2_ptsz, a.at(), kBuffer, kDevice, 0, nullptr); });
    const auto leaves_out = [&](auto&& prefetch) {
        crowd.evict(a);
        prefetch();
        EXPECT(a.evicted());
    };
    leaves_out([&] { OK(cuMemPrefetchAsync, a.at(), kBuffer, CU_DEVICE_CPU, nullptr); });
    leaves_out([&] { OK(cuMemPrefetchAsync_ptsz, a.at(), kBuffer, CU_DEVICE_CPU, nullptr); });
    leaves_out([&] { OK(cuMemPrefetchAsync_v2, a.at(), kBuffer, kHost, 0, nullptr); });
    leaves_out([&] { OK(cuMemPrefetchAsync_v2_ptsz, a.at(), kBuffer, kHost, 0, nullptr); });
    EXPECT(a.holds(1));
}

FAMILY_TEST("hints: one for more than the GPU holds brings in the first part") {
    const Gpu gpu;
    const Buffer large(6 * kMiB, 1);
    Crowd crowd;
    crowd.evict(large);
    OK(cuMemPrefetchAsync, large.at(), large.bytes(), gpu.device, nullptr);
    OK(cuCtxSynchronize);
    EXPECT(on_device(large.at(), kGranule));
    OK(cuMemAdvise, large.at(), large.bytes(), CU_MEM_ADVISE_SET_READ_MOSTLY, gpu.device);
    EXPECT(large.holds(1));
}

FAMILY_TEST("hints: a range that is not within one buffer is refused") {
    const Gpu gpu;
    const Buffer a(kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync, a.at(), kBuffer + 1, gpu.device, nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync, a.at(), 0, gpu.device, nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise, a.at(16), kBuffer, CU_MEM_ADVISE_SET_READ_MOSTLY,
          gpu.device);
    int value = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute, &value, sizeof value,
          CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a.at(), kBuffer + 1);
}

FAMILY_TEST("hints: advice is taken, the driver's own memory gets the driver's answer") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    OK(cuMemAdvise, a.at(), kBuffer, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU);
    OK(cuMemAdvise_v2, a.at(), kBuffer, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice);
    EXPECT(a.holds(1));
    const CUdeviceptr managed = driver_managed(kBuffer);
    OK(cuMemAdvise, managed, kBuffer, CU_MEM_ADVISE_SET_READ_MOSTLY, gpu.device);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise, managed, kBuffer, static_cast<CUmem_advise>(99), gpu.device);
    OK(cuMemPrefetchAsync, managed, kBuffer, gpu.device, nullptr);
    OK(cuCtxSynchronize);
    int read_mostly = 0;
    OK(cuMemRangeGetAttribute, &read_mostly, sizeof read_mostly, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, managed,
       kBuffer);
    EXPECT(read_mostly == 1);
    read_mostly = 0;
    int prefetched = 7;
    void* data[] = {&read_mostly, &prefetched};
    std::size_t sizes[] = {sizeof read_mostly, sizeof prefetched};
    CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                     CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION};
    OK(cuMemRangeGetAttributes, data, sizes, which, 2, managed, kBuffer);
    EXPECT(read_mostly == 1);
    EXPECT(prefetched == gpu.device);
}

FAMILY_TEST("hints: attributes of a managed range are those of one without advice") {
    const Gpu gpu;
    const Buffer a(kBuffer);
    int read_mostly = 7;
    int accessed_by[3] = {7, 7, 7};
    OK(cuMemRangeGetAttribute, &read_mostly, sizeof read_mostly, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, a.at(),
       kBuffer);
    EXPECT(read_mostly == 0);
    int preferred = 7;
    void* data[] = {accessed_by, &preferred};
    std::size_t sizes[] = {sizeof accessed_by, sizeof preferred};
    CUmem_range_attribute which[] = {CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                                     CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
    OK(cuMemRangeGetAttributes, data, sizes, which, 2, a.at(16), 16);
    for (const int device : accessed_by) EXPECT(device == CU_DEVICE_INVALID);
    EXPECT(preferred == CU_DEVICE_INVALID);
    const auto one = [&](CUmem_range_attribute attribute) {
        int value = 7;
        OK(cuMemRangeGetAttribute, &value, sizeof value, attribute, a.at(), kBuffer);
        return value;
    };
    EXPECT(one(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION) == CU_DEVICE_INVALID);
    EXPECT(one(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE) == CU_MEM_LOCATION_TYPE_INVALID);
    EXPECT(one(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE) == CU_MEM_LOCATION_TYPE_INVALID);
    EXPECT(one(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID) == 0);
    EXPECT(one(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID) == 0);

    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute, accessed_by, 6,
          CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, a.at(), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute, &preferred, sizeof preferred,
          static_cast<CUmem_range_attribute>(99), a.at(), kBuffer);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes, data, sizes, which, 2, a.at(16), kBuffer);
    which[1] = static_cast<CUmem_range_attribute>(99);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttributes, data, sizes, which, 2, a.at(), kBuffer);
}

OVERLAY_TEST("hints: of a mixed batch the managed part is taken, the rest passed on with its locations") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const CUdeviceptr first = driver_managed(kBuffer);
    const CUdeviceptr second = driver_managed(kBuffer);
    Crowd crowd;
    CUdeviceptr addresses[] = {a.at(), first, b.at(), second};
    std::size_t sizes[] = {kBuffer, kBuffer, kBuffer, kBuffer};
    CUmemLocation locations[] = {kDevice, {CU_MEM_LOCATION_TYPE_HOST, 5}};
    std::size_t starts[] = {0, 2};
    int calls = 0;
    const auto check = [&](auto&& prefetch) {
        crowd.evict(a);
        crowd.evict(b);
        prefetch(addresses, sizes, 4, locations, starts, 2, 0, nullptr);
        OK(cuCtxSynchronize);
        EXPECT(record().hint_calls == ++calls);
        EXPECT(record().hints.size() == 2);
        EXPECT(record().hints[0].address == first);
        EXPECT(record().hints[0].location == 0);
        EXPECT(record().hints[1].address == second);
        EXPECT(record().hints[1].location == 5);
        EXPECT(a.resident());
        EXPECT(b.evicted());
    };
    check([](auto... arguments) { OK(cuMemPrefetchBatchAsync, arguments...); });
    check([](auto... arguments) { OK(cuMemPrefetchBatchAsync_ptsz, arguments...); });
    check([](auto... arguments) { OK(cuMemDiscardAndPrefetchBatchAsync, arguments...); });
    check([](auto... arguments) { OK(cuMemDiscardAndPrefetchBatchAsync_ptsz, arguments...); });

    OK(cuMemDiscardBatchAsync, addresses, sizes, 4, 0, nullptr);
    OK(cuMemDiscardBatchAsync_ptsz, addresses, sizes, 4, 0, nullptr);
    EXPECT(record().hint_calls == calls + 2);
    EXPECT(record().hints.size() == 2);
    // Nothing is left for the driver.
    OK(cuMemDiscardBatchAsync, addresses, sizes, 1, 0, nullptr);
    EXPECT(record().hint_calls == calls + 2);
}

OVERLAY_TEST("hints: a batch with a part that is refused does nothing") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const CUdeviceptr own = driver_managed(kBuffer);
    Crowd crowd;
    crowd.evict(a);
    CUdeviceptr addresses[] = {a.at(), own, a.at()};
    std::size_t sizes[] = {kBuffer, kBuffer, kBuffer + 1};
    CUmemLocation location = kDevice;
    std::size_t start = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync, addresses, sizes, 3, &location, &start, 1, 0,
          nullptr);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync, addresses, sizes, 3, 0, nullptr);
    EXPECT(record().hint_calls == 0);
    addresses[2] = overlay::kRefused;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync, addresses, sizes, 3, &location, &start, 1, 0,
          nullptr);
    EXPECT(record().hint_calls == 1);
    EXPECT(a.evicted());
    EXPECT(a.holds(1));
}
