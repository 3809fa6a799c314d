// Fact 1: what the calls of virtual memory management cost.
#include <algorithm>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

constexpr int kRounds = 16;
constexpr unsigned kSpan = 8;  // mappings under one grant of access

// One round of every call, with a handle made for it.
void measure_fresh(const Card& card, CUmemLocation location, std::uint64_t bytes, const std::string& name,
                   Record& record) {
    Samples created, mapped, granted, unmapped, released;
    const Address address = reserve(bytes);
    for (int i = 0; i < kRounds; ++i) {
        CUmemGenericAllocationHandle handle = 0;
        created.add(microseconds([&] { handle = create(bytes, location); }));
        mapped.add(microseconds([&] { CU(cuMemMap, address, bytes, 0, handle, 0); }));
        granted.add(microseconds([&] { grant(card, address, bytes, location); }));
        unmapped.add(microseconds([&] { CU(cuMemUnmap, address, bytes); }));
        released.add(microseconds([&] { CU(cuMemRelease, handle); }));
    }
    CU(cuMemAddressFree, address, bytes);
    record.samples(name + "/fresh/create", created, "us");
    record.samples(name + "/fresh/map", mapped, "us");
    record.samples(name + "/fresh/set access", granted, "us");
    record.samples(name + "/fresh/unmap", unmapped, "us");
    record.samples(name + "/fresh/release", released, "us");
}

// The calls of a remap, with handles that stay.
void measure_reused(const Card& card, CUmemLocation location, std::uint64_t bytes, const std::string& name,
                    Record& record) {
    Samples mapped, granted, unmapped, together;
    const CUmemGenericAllocationHandle handle = create(bytes, location);
    const Address address = reserve(bytes);
    for (int i = 0; i < kRounds; ++i) {
        const double map = microseconds([&] { CU(cuMemMap, address, bytes, 0, handle, 0); });
        const double set = microseconds([&] { grant(card, address, bytes, location); });
        const double unmap = microseconds([&] { CU(cuMemUnmap, address, bytes); });
        if (i == 0) continue;  // the first is a fresh one's
        mapped.add(map);
        granted.add(set);
        unmapped.add(unmap);
        together.add(map + set + unmap);
    }
    CU(cuMemAddressFree, address, bytes);
    CU(cuMemRelease, handle);
    record.samples(name + "/reused/map", mapped, "us");
    record.samples(name + "/reused/set access", granted, "us");
    record.samples(name + "/reused/unmap", unmapped, "us");
    record.samples(name + "/reused/remap", together, "us");
}

// Several mappings side by side: one grant and one unmap over all of them.
void measure_span(const Card& card, CUmemLocation location, std::uint64_t bytes, const std::string& name,
                  Record& record) {
    if (kSpan * bytes > std::min(card.memory_bytes, card.host_bytes)) return;
    Samples granted, unmapped;
    CUmemGenericAllocationHandle handles[kSpan];
    for (auto& handle : handles) handle = create(bytes, location);
    const Address address = reserve(kSpan * bytes);
    for (int i = 0; i < kRounds; ++i) {
        for (unsigned k = 0; k < kSpan; ++k) CU(cuMemMap, address + k * bytes, bytes, 0, handles[k], 0);
        granted.add(microseconds([&] { grant(card, address, kSpan * bytes, location); }));
        unmapped.add(microseconds([&] { CU(cuMemUnmap, address, kSpan * bytes); }));
    }
    CU(cuMemAddressFree, address, kSpan * bytes);
    for (const auto handle : handles) CU(cuMemRelease, handle);
    record.samples(name + "/over 8 mappings/set access", granted, "us");
    record.samples(name + "/over 8 mappings/unmap", unmapped, "us");
}

}  // namespace

void vmm_costs(const Card& card, Record& record) {
    record.number("granularity", static_cast<double>(card.granularity), "bytes");
    for (const Place place : {Place::Device, Place::Host}) {
        const CUmemLocation location = card.location(place);
        const std::string where = place == Place::Device ? "device/" : "host/";
        if (location.type == CU_MEM_LOCATION_TYPE_INVALID) {
            record.text(where + "memory", "not supported by this device");
            continue;
        }
        for (std::uint64_t bytes = 2 * kMiB; bytes <= 64 * kMiB; bytes *= 2) {
            if (bytes > card.memory_bytes || bytes > card.host_bytes || bytes % card.granularity != 0)
                continue;
            const std::string name = where + mib_text(bytes);
            measure_fresh(card, location, bytes, name, record);
            measure_reused(card, location, bytes, name, record);
            measure_span(card, location, bytes, name, record);
        }
    }
}

}  // namespace facts
