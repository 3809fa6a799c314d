#include "tools/gpu_facts/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

// The PTX of kernels.cu, compiled by nvcc and linked in.
__asm__(".section .rodata\nfacts_kernels:\n.incbin \"" KERNELS_PTX "\"\n.byte 0\n.previous\n");
extern "C" const char facts_kernels[] __attribute__((visibility("hidden")));

namespace facts {
namespace {

unsigned not_ready = 0;

// Memory that the machine could give without swapping.
std::uint64_t available_host_bytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string word; file >> word;) {
        std::uint64_t kib = 0;
        if (word == "MemAvailable:" && file >> kib) return kib << 10;
    }
    return kGiB;
}

bool same(CUmemLocation a, CUmemLocation b) {
    return a.type == b.type && a.id == b.id;
}

CUmemAllocationProp properties(CUmemLocation location) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = location;
    return prop;
}

}  // namespace

std::string mib_text(std::uint64_t bytes) {
    return bytes % kMiB == 0 ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes >> 10);
}

Card::Card(const Limits& limits) : most(limits.most) {
    CU(cuInit, 0);
    CU(cuDeviceGet, &device, 0);
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxSetCurrent, context);
    const CUmemAllocationProp prop = properties(location(Place::Device));
    std::size_t bytes = 0;
    CU(cuMemGetAllocationGranularity, &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    granularity = bytes;
    std::size_t free_bytes = 0, total_bytes = 0;
    CU(cuMemGetInfo_v2, &free_bytes, &total_bytes);
    memory_bytes =
        std::min<std::uint64_t>(limits.memory_bytes == 0 ? free_bytes / 2 : limits.memory_bytes, free_bytes);
    host_bytes = std::min(memory_bytes, available_host_bytes() / 4);
    module = load_kernels();
}

int Card::attribute(CUdevice_attribute which) const {
    int value = 0;
    return driver().cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

std::string Card::name() const {
    char name[256] = "";
    CU(cuDeviceGetName, name, sizeof name, device);
    return name;
}

bool Card::simulated() const {
    return name() == "Simulated GPU";
}

CUmodule Card::load_kernels() const {
    CUmodule loaded = nullptr;
    CU(cuModuleLoadData, &loaded, facts_kernels);
    return loaded;
}

CUfunction Card::kernel(const char* name) const {
    CUfunction function = nullptr;
    CU(cuModuleGetFunction, &function, module, name);
    return function;
}

std::uint64_t Card::sized(std::uint64_t wanted, unsigned share) const {
    const std::uint64_t bytes = std::min(wanted, std::min(memory_bytes, host_bytes) / share);
    return std::max(bytes / granularity, std::uint64_t{1}) * granularity;
}

std::vector<CUmemLocation> Card::host_locations() const {
    std::vector<CUmemLocation> found;
    if (attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        found.push_back({CU_MEM_LOCATION_TYPE_HOST, 0});
    if (attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        found.push_back(
            {CU_MEM_LOCATION_TYPE_HOST_NUMA, std::max(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), 0)});
    return found;
}

CUmemLocation Card::host_location() const {
    const auto found = host_locations();
    return found.empty() ? CUmemLocation{CU_MEM_LOCATION_TYPE_INVALID, 0} : found.front();
}

CUmemLocation Card::location(Place place) const {
    return place == Place::Host ? host_location() : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUmemGenericAllocationHandle create(std::uint64_t bytes, CUmemLocation location) {
    if (location.type == CU_MEM_LOCATION_TYPE_INVALID)
        throw Failure{CUDA_ERROR_NOT_SUPPORTED, "memory on the host behind device addresses"};
    const CUmemAllocationProp prop = properties(location);
    CUmemGenericAllocationHandle handle = 0;
    CU(cuMemCreate, &handle, bytes, &prop, 0);
    return handle;
}

unsigned not_ready_answers() {
    return not_ready;
}

void grant(const Card& card, Address address, std::uint64_t bytes, CUmemLocation location) {
    const CUmemLocation device = card.location(Place::Device);
    const CUmemAccessDesc access[] = {{device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                      {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUresult status = CUDA_ERROR_NOT_READY;
    for (int attempt = 0; attempt < 1000 && status == CUDA_ERROR_NOT_READY; ++attempt) {
        status = driver().cuMemSetAccess(address, bytes, access, same(device, location) ? 1 : 2);
        if (status == CUDA_ERROR_NOT_READY) ++not_ready;
    }
    require(status, "cuMemSetAccess");
}

Address reserve(std::uint64_t bytes) {
    Address address = 0;
    CU(cuMemAddressReserve, &address, bytes, 0, 0, 0);
    return address;
}

Block::Block(const Card& card, std::uint64_t size, CUmemLocation location) : bytes(size) {
    handle = create(bytes, location);
    address = reserve(bytes);
    CU(cuMemMap, address, bytes, 0, handle, 0);
    grant(card, address, bytes, location);
}

// After a fault nothing works any more, and the process ends: results do not matter here.
Block::~Block() {
    driver().cuMemUnmap(address, bytes);
    driver().cuMemRelease(handle);
    driver().cuMemAddressFree(address, bytes);
}

void Block::remap(const Card& card, CUmemGenericAllocationHandle other, CUmemLocation location) {
    CU(cuMemUnmap, address, bytes);
    CU(cuMemMap, address, bytes, 0, other, 0);
    grant(card, address, bytes, location);
}

Pinned::Pinned(std::uint64_t bytes) {
    CU(cuMemHostAlloc, &data, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

Pinned::~Pinned() {
    driver().cuMemFreeHost(data);
}

Stream::Stream() {
    CU(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
}

Stream::~Stream() {
    driver().cuStreamDestroy_v2(stream_);
}

bool Stream::busy() const {
    const CUresult status = driver().cuStreamQuery(stream_);
    if (status == CUDA_ERROR_NOT_READY) return true;
    require(status, "cuStreamQuery");
    return false;
}

void Stream::wait() const {
    CU(cuStreamSynchronize, stream_);
}

}  // namespace facts
