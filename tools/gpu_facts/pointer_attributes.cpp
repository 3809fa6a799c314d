// Fact 7: what the driver says of a pointer in each state of its address.
#include <fmt/format.h>

#include <functional>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

// How an answer is written down: as it is, or, for what differs from run to run, in relation to what was
// asked.
enum class Kind { Number, Pointer, Handle };

struct Attribute {
    CUpointer_attribute which;
    const char* name;
    std::size_t bytes;
    Kind kind;
};

#define ATTRIBUTE(name, type, kind) \
    { CU_POINTER_ATTRIBUTE_##name, #name, sizeof(type), Kind::kind }
constexpr Attribute kAttributes[] = {
    ATTRIBUTE(CONTEXT, CUcontext, Handle),
    ATTRIBUTE(MEMORY_TYPE, unsigned, Number),
    ATTRIBUTE(DEVICE_POINTER, CUdeviceptr, Pointer),
    ATTRIBUTE(HOST_POINTER, void*, Pointer),
    ATTRIBUTE(SYNC_MEMOPS, unsigned, Number),
    ATTRIBUTE(BUFFER_ID, unsigned long long, Handle),
    ATTRIBUTE(IS_MANAGED, unsigned, Number),
    ATTRIBUTE(DEVICE_ORDINAL, int, Number),
    ATTRIBUTE(IS_LEGACY_CUDA_IPC_CAPABLE, unsigned, Number),
    ATTRIBUTE(RANGE_START_ADDR, CUdeviceptr, Pointer),
    ATTRIBUTE(RANGE_SIZE, std::size_t, Number),
    ATTRIBUTE(MAPPED, unsigned, Number),
    ATTRIBUTE(ALLOWED_HANDLE_TYPES, std::uint64_t, Number),
    ATTRIBUTE(IS_GPU_DIRECT_RDMA_CAPABLE, unsigned, Number),
    ATTRIBUTE(ACCESS_FLAGS, unsigned, Number),
    ATTRIBUTE(MEMPOOL_HANDLE, void*, Handle),
    ATTRIBUTE(MAPPING_SIZE, std::size_t, Number),
    ATTRIBUTE(MAPPING_BASE_ADDR, CUdeviceptr, Pointer),
    ATTRIBUTE(MEMORY_BLOCK_ID, unsigned long long, Handle),
    ATTRIBUTE(IS_HW_DECOMPRESS_CAPABLE, unsigned, Number),
};
#undef ATTRIBUTE

std::string written(const Attribute& attribute, std::uint64_t value, Address asked) {
    switch (attribute.kind) {
        case Kind::Handle:
            return value == 0 ? "none" : "set";
        case Kind::Pointer:
            if (value == 0) return "null";
            return value == asked ? "the address"
                                  : fmt::format("the address {:+}", static_cast<std::int64_t>(value - asked));
        case Kind::Number:
            break;
    }
    return attribute.bytes == sizeof(int) ? fmt::format("{}", static_cast<int>(value))
                                          : fmt::format("{}", value);
}

void describe(const std::string& state, Address address, Record& record) {
    std::string all;
    for (const Attribute& attribute : kAttributes) {
        std::uint64_t value = 0;
        const CUresult status = driver().cuPointerGetAttribute(&value, attribute.which, address);
        all += fmt::format("{}{}: {}", all.empty() ? "" : "; ", attribute.name,
                           status == CUDA_SUCCESS ? written(attribute, value, address) : name_of(status));
    }
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    const CUresult status = driver().cuMemGetAddressRange_v2(&base, &bytes, address);
    all += fmt::format("; cuMemGetAddressRange: {}",
                       status != CUDA_SUCCESS ? name_of(status)
                                              : fmt::format("{} bytes from the address {:+}", bytes,
                                                            static_cast<std::int64_t>(base - address)));
    record.text(state, all);
}

}  // namespace

void pointer_attributes(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(2 * kMiB, 8);
    CUdeviceptr plain = 0;
    CU(cuMemAlloc_v2, &plain, bytes);
    describe("cuMemAlloc", plain, record);
    describe("cuMemAlloc, 4096 bytes in", plain + 4096, record);
    CU(cuMemFree_v2, plain);
    describe("freed", plain, record);

    // Two mappings in one reservation, asked for in the second.
    const Address address = reserve(2 * bytes);
    describe("reserved", address + bytes, record);
    const CUmemGenericAllocationHandle first = create(bytes, card.location(Place::Device));
    const CUmemGenericAllocationHandle second = create(bytes, card.location(Place::Device));
    CU(cuMemMap, address, bytes, 0, first, 0);
    CU(cuMemMap, address + bytes, bytes, 0, second, 0);
    describe("mapped to the device, no access granted", address + bytes, record);
    grant(card, address, 2 * bytes, card.location(Place::Device));
    describe("mapped to the device", address + bytes, record);
    Samples times;
    for (int i = 0; i < 64; ++i) {
        CUdeviceptr value = 0;
        times.add(microseconds([&] {
            CU(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + bytes);
        }));
    }
    record.samples("one attribute of a mapped address", times, "us");
    CU(cuMemUnmap, address + bytes, bytes);
    describe("unmapped again", address + bytes, record);

    const CUmemLocation host = card.location(Place::Host);
    if (host.type != CU_MEM_LOCATION_TYPE_INVALID) {
        const CUmemGenericAllocationHandle third = create(bytes, host);
        CU(cuMemMap, address + bytes, bytes, 0, third, 0);
        grant(card, address + bytes, bytes, host);
        describe("mapped to the host", address + bytes, record);
        CU(cuMemUnmap, address + bytes, bytes);
        CU(cuMemRelease, third);
    }
    const Pinned pinned(bytes);
    describe("pinned host memory", pinned.address(), record);
}

}  // namespace facts
