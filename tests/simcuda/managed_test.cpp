// Hints about managed memory: what was said is answered, page by page.
#include <algorithm>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

constexpr std::size_t kHostPage = 4096;

template <class Value>
Value ask(CUmem_range_attribute attribute, CUdeviceptr address, std::size_t bytes) {
    Value value{};
    OK(cuMemRangeGetAttribute, &value, sizeof value, attribute, address, bytes);
    return value;
}

CUdeviceptr managed(std::size_t pages) {
    CUdeviceptr p = 0;
    OK(cuMemAllocManaged, &p, pages * kHostPage, CU_MEM_ATTACH_GLOBAL);
    return p;
}

constexpr CUmemLocation kDevice{CU_MEM_LOCATION_TYPE_DEVICE, 0}, kHost{CU_MEM_LOCATION_TYPE_HOST, 0};

SIM_TEST("managed: advice is kept for its pages and no others", {}) {
    const Gpu gpu;
    const CUdeviceptr p = managed(8);
    const auto read_mostly = [&](std::size_t page, std::size_t pages) {
        return ask<int>(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p + page * kHostPage, pages * kHostPage);
    };
    EXPECT(read_mostly(0, 8) == 0);
    OK(cuMemAdvise, p + 2 * kHostPage, 4 * kHostPage, CU_MEM_ADVISE_SET_READ_MOSTLY, kHost);
    EXPECT(read_mostly(2, 4) == 1);
    EXPECT(read_mostly(3, 1) == 1);
    EXPECT(read_mostly(1, 2) == 0);
    EXPECT(read_mostly(5, 2) == 0);
    OK(cuMemAdvise, p + 3 * kHostPage, 10, CU_MEM_ADVISE_UNSET_READ_MOSTLY, kHost);  // all of that page
    EXPECT(read_mostly(2, 1) == 1 && read_mostly(3, 1) == 0 && read_mostly(4, 2) == 1);

    EXPECT(ask<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, kHostPage) == CU_DEVICE_INVALID);
    OK(cuMemAdvise, p, 8 * kHostPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice);
    EXPECT(ask<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 8 * kHostPage) == 0);
    EXPECT(ask<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, p, 8 * kHostPage) ==
           CU_MEM_LOCATION_TYPE_DEVICE);
    OK(cuMemAdvise, p, kHostPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost);
    EXPECT(ask<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, kHostPage) == CU_DEVICE_CPU);
    EXPECT(ask<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 2 * kHostPage) == CU_DEVICE_INVALID);
    OK(cuMemAdvise, p, 8 * kHostPage, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, kHost);
    EXPECT(ask<int>(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, p, kHostPage) ==
           CU_MEM_LOCATION_TYPE_INVALID);

    OK(cuMemAdvise, p, 2 * kHostPage, CU_MEM_ADVISE_SET_ACCESSED_BY, kDevice);
    int devices[3] = {7, 7, 7};
    OK(cuMemRangeGetAttribute, devices, sizeof devices, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, 2 * kHostPage);
    EXPECT(devices[0] == 0 && devices[1] == CU_DEVICE_INVALID && devices[2] == CU_DEVICE_INVALID);
    OK(cuMemRangeGetAttribute, devices, sizeof devices, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, 3 * kHostPage);
    EXPECT(devices[0] == CU_DEVICE_INVALID);

    // The next owner of the address starts without.
    OK(cuMemAdvise, p, 8 * kHostPage, CU_MEM_ADVISE_SET_READ_MOSTLY, kHost);
    OK(cuMemFree, p);
    int value = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute, &value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p,
          kHostPage);
    const CUdeviceptr q = managed(8);
    EXPECT(ask<int>(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, q, kHostPage) == 0);
}

SIM_TEST("managed: prefetches, one by one and in batches", {}) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const CUdeviceptr p = managed(4), q = managed(4);
    const auto last = [](CUdeviceptr at, std::size_t pages) {
        return ask<int>(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, at, pages * kHostPage);
    };
    EXPECT(last(p, 4) == CU_DEVICE_INVALID);
    OK(cuMemPrefetchAsync, p, 4 * kHostPage, kDevice, 0, stream);
    EXPECT(last(p, 4) == 0);
    CUdeviceptr addresses[] = {p, p + kHostPage, q};
    std::size_t bytes[] = {kHostPage, kHostPage, 4 * kHostPage}, starts[] = {0, 2}, wrong[] = {0, 3};
    CUmemLocation locations[] = {kHost, kDevice};
    OK(cuMemPrefetchBatchAsync, addresses, bytes, 3, locations, starts, 2, 0, stream);
    EXPECT(last(p, 2) == CU_DEVICE_CPU && last(p + 2 * kHostPage, 2) == 0 && last(q, 4) == 0);
    void* answers[] = {&starts[0], &starts[1]};
    std::size_t sizes[] = {4, 4};
    CUmem_range_attribute attributes[] = {CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
                                          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID};
    int type = 0, id = 7;
    answers[0] = &type;
    answers[1] = &id;
    OK(cuMemRangeGetAttributes, answers, sizes, attributes, 2, q, kHostPage);
    EXPECT(type == CU_MEM_LOCATION_TYPE_DEVICE && id == 0);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync, addresses, bytes, 3, locations, wrong, 2, 0,
          stream);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync, addresses, bytes, 3, locations, starts, 2, 1,
          stream);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRangeGetAttribute, &id, 2, attributes[1], q, kHostPage);

    // What is discarded is not to be read: nothing of it is left.
    auto* bytes_of_q = reinterpret_cast<std::uint8_t*>(q);
    std::fill(bytes_of_q, bytes_of_q + 4 * kHostPage, 1);
    OK(cuMemDiscardBatchAsync, addresses + 2, bytes + 2, 1, 0, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(std::count(bytes_of_q, bytes_of_q + 4 * kHostPage, 1) == 0);
}

}  // namespace
