// Fact 8: how many handles and mappings there may be.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

constexpr double kMicroseconds = 5e6;  // spent on making one kind

std::uint64_t lines_of_maps() {
    std::ifstream file("/proc/self/maps");
    return static_cast<std::uint64_t>(
        std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}

// Makes one after the other until `most`, a refusal, or the time is over. Returns how many.
std::uint64_t count_up_to(std::uint64_t most, const std::string& bound, const std::string& name,
                          Record& record, const std::function<CUresult(std::uint64_t)>& make) {
    constexpr std::uint64_t kEnds = 64;  // the cost of the first and the last so many
    std::vector<double> times;
    std::string stopped = bound;
    double total = 0;
    while (times.size() < most) {
        CUresult status = CUDA_SUCCESS;
        const double us = microseconds([&] { status = make(times.size()); });
        if (status != CUDA_SUCCESS) {
            stopped = name_of(status);
            break;
        }
        times.push_back(us);
        total += us;
        if (total > kMicroseconds) {
            stopped = "the time set for it";
            break;
        }
    }
    record.number(name + "/made", static_cast<double>(times.size()), "");
    record.text(name + "/stopped by", stopped);
    const std::size_t ends = std::min<std::size_t>(kEnds, times.size());
    Samples first, last;
    for (std::size_t i = 0; i < ends; ++i) {
        first.add(times[i]);
        last.add(times[times.size() - 1 - i]);
    }
    record.samples(name + "/one of the first", first, "us");
    record.samples(name + "/one of the last", last, "us");
    return times.size();
}

std::string bound_text(std::uint64_t count, std::uint64_t most) {
    return count == most ? "the stated count" : "the memory it may take";
}

}  // namespace

void handle_limits(const Card& card, Record& record) {
    for (const Place place : {Place::Device, Place::Host}) {
        const CUmemLocation location = card.location(place);
        if (location.type == CU_MEM_LOCATION_TYPE_INVALID) continue;
        const std::uint64_t memory = place == Place::Device ? card.memory_bytes : card.host_bytes;
        const std::uint64_t most = std::min(card.most, memory / card.granularity);
        std::vector<CUmemGenericAllocationHandle> handles(most);
        CUmemAllocationProp prop{};
        prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        prop.location = location;
        const std::string name = place == Place::Device ? "handles on the device" : "handles on the host";
        const std::uint64_t made = count_up_to(
            most, bound_text(most, card.most), name, record,
            [&](std::uint64_t i) { return driver().cuMemCreate(&handles[i], card.granularity, &prop, 0); });
        for (std::uint64_t i = 0; i < made; ++i) CU(cuMemRelease, handles[i]);
    }
}

// One handle at many addresses: what is counted is the mappings.
void mapping_limits(const Card& card, Record& record) {
    const std::uint64_t bytes = card.granularity;
    for (const Place place : {Place::Device, Place::Host}) {
        const CUmemLocation location = card.location(place);
        if (location.type == CU_MEM_LOCATION_TYPE_INVALID) continue;
        const std::string name =
            place == Place::Device ? "mappings of device memory" : "mappings of host memory";
        const CUmemGenericAllocationHandle handle = create(bytes, location);
        const Address address = reserve(card.most * bytes);
        const std::uint64_t before = lines_of_maps();
        const std::uint64_t made =
            count_up_to(card.most, "the stated count", name, record, [&](std::uint64_t i) {
                const CUresult status = driver().cuMemMap(address + i * bytes, bytes, 0, handle, 0);
                if (status == CUDA_SUCCESS) grant(card, address + i * bytes, bytes, location);
                return status;
            });
        record.number(name + "/process maps they took", static_cast<double>(lines_of_maps() - before),
                      "maps");
        if (made == 0) continue;
        record.number(name + "/one unmap over all of them",
                      microseconds([&] { CU(cuMemUnmap, address, made * bytes); }), "us");
        CU(cuMemRelease, handle);
        CU(cuMemAddressFree, address, card.most * bytes);
    }
}

}  // namespace facts
