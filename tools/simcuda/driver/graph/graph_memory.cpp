#include "tools/simcuda/driver/graph/graph_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "tools/simcuda/driver/address_space.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

struct Registry {
    std::mutex mutex;  // guards what follows
    std::map<CUdeviceptr, std::weak_ptr<GraphMemory>> by_address;
    std::map<int, std::uint64_t> high;  // by device ordinal
};

Registry& registry() {
    static auto& registry = *new Registry;
    return registry;
}

std::atomic<std::size_t> g_count{0};

std::uint64_t span_of(std::uint64_t bytes) {
    return round_up(bytes, kPage) + kPage;  // a page stays free behind each allocation
}

}  // namespace

GraphMemory::GraphMemory(Device& device, std::uint64_t bytes)
    : device_(device), bytes_(bytes), address_(address_space().reserve(span_of(bytes), kPage)) {
    require(address_ != 0, CUDA_ERROR_OUT_OF_MEMORY);
    ++g_count;
}

GraphMemory::~GraphMemory() {
    {
        std::lock_guard lock(registry().mutex);
        registry().by_address.erase(address_);
    }
    address_space().release(address_, span_of(bytes_));
    --g_count;
}

void GraphMemory::add_free_in(const Graph& graph) {
    const bool by_owner = freed_in_.contains(owner);
    require(!freed_in_.contains(&graph) && !by_owner && (&graph != owner || freed_in_.empty()),
            CUDA_ERROR_INVALID_VALUE);
    freed_in_.insert(&graph);
}

void GraphMemory::forget_graph(const Graph& graph) {
    freed_in_.erase(&graph);
}

bool GraphMemory::outstanding() const {
    std::lock_guard lock(mutex_);
    return outstanding_;
}

bool GraphMemory::set_outstanding(bool value) {
    std::lock_guard lock(mutex_);
    return std::exchange(outstanding_, value);
}

void GraphMemory::begin_use(Context& context) {
    std::lock_guard lock(mutex_);
    if (uses_ == 0) map(context);
    ++uses_;
}

void GraphMemory::end_use() {
    std::lock_guard lock(mutex_);
    if (--uses_ != 0) return;
    if (const RegionPtr region = memory_map().remove(address_); region != nullptr) dispose(*region);
}

void GraphMemory::map(Context& context) {
    const auto region = new_region(Region::Kind::Async, bytes_, device_, context);
    region->address = address_;
    region->graph_memory = shared_from_this();
    region->physical = Physical::create(device_.memory, bytes_);
    if (region->physical == nullptr) {
        synchronize(context);  // frees on their way make room
        region->physical = Physical::create(device_.memory, bytes_);
    }
    require(region->physical != nullptr &&
                region->physical->map(address_ - kDeviceToHost, PROT_READ | PROT_WRITE),
            CUDA_ERROR_OUT_OF_MEMORY);
    memory_map().insert(region);
    const std::uint64_t used = graph_memory_used(device_);
    std::lock_guard lock(registry().mutex);
    std::uint64_t& high = registry().high[device_.ordinal];
    high = std::max(high, used);
}

std::shared_ptr<GraphMemory> create_graph_memory(Device& device, std::uint64_t bytes) {
    require(bytes < kDeviceWindowEnd - kDeviceWindowBegin, CUDA_ERROR_OUT_OF_MEMORY);
    auto memory = std::make_shared<GraphMemory>(device, bytes);
    std::lock_guard lock(registry().mutex);
    registry().by_address.emplace(memory->address(), memory);
    return memory;
}

std::shared_ptr<GraphMemory> graph_memory_at(std::uint64_t address, std::uint64_t bytes) {
    if (g_count == 0) return nullptr;
    std::lock_guard lock(registry().mutex);
    auto it = registry().by_address.upper_bound(address);
    if (it == registry().by_address.begin()) return nullptr;
    auto memory = std::prev(it)->second.lock();
    return memory != nullptr && address + bytes <= memory->address() + memory->bytes() ? memory : nullptr;
}

std::uint64_t graph_memory_used(const Device& device) {
    std::uint64_t used = 0;
    for (const RegionPtr& region :
         memory_map().overlapping(kDeviceWindowBegin, kDeviceWindowEnd - kDeviceWindowBegin)) {
        if (region->graph_memory != nullptr && region->device == &device) used += region->physical->bytes();
    }
    return used;
}

std::uint64_t graph_memory_high(const Device& device) {
    std::lock_guard lock(registry().mutex);
    return registry().high[device.ordinal];
}

void reset_graph_memory_high(const Device& device) {
    const std::uint64_t used = graph_memory_used(device);
    std::lock_guard lock(registry().mutex);
    registry().high[device.ordinal] = used;
}

}  // namespace simcuda::driver
