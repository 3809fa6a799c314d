#include "tools/simcuda/driver/graph/graph_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <vector>

#include "tools/simcuda/driver/address_space.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
// What may change is guarded by the registry's mutex.
struct GraphBlock {
    const Device* const device;
    const std::weak_ptr<Physical> physical;  // the mapped regions have it, and go with their contexts
    const GraphMemory* holder;               // by what has been launched so far; null: passed on
    std::uint64_t stream_id = 0;             // to what is launched there next
};

namespace {

struct GraphMemoryRegistry {
    std::mutex mutex;  // guards what follows
    std::vector<std::weak_ptr<GraphBlock>> passed_on;
    std::map<CUdeviceptr, std::weak_ptr<GraphMemory>> by_address;
    std::map<int, std::uint64_t> high;  // by device ordinal
};

GraphMemoryRegistry& graph_memory_registry() {
    static auto& graph_memory_registry = *new GraphMemoryRegistry;
    return graph_memory_registry;
}

std::atomic<std::size_t> g_count{0};

struct Taken {
    std::shared_ptr<GraphBlock> block;
    std::shared_ptr<Physical> physical;
};

// A block of the size that `by` wants, which an earlier launch of the stream frees; nulls if there is none.
Taken take_passed_on(const Stream& stream, const GraphMemory& by) {
    std::lock_guard lock(graph_memory_registry().mutex);
    Taken taken;
    std::erase_if(graph_memory_registry().passed_on, [&](const std::weak_ptr<GraphBlock>& weak) {
        const auto block = weak.lock();
        auto physical = block != nullptr ? block->physical.lock() : nullptr;
        if (physical == nullptr || block->holder != nullptr) return true;
        if (taken.block != nullptr || block->stream_id != stream.id || block->device != &by.device() ||
            physical->bytes() != round_up(by.bytes(), kPage))
            return false;
        taken = {block, std::move(physical)};
        return true;
    });
    if (taken.block != nullptr) taken.block->holder = &by;
    return taken;
}

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
        std::lock_guard lock(graph_memory_registry().mutex);
        graph_memory_registry().by_address.erase(address_);
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

void GraphMemory::begin_use(Context& context, const Stream& stream) {
    std::unique_lock lock(mutex_);
    if (uses_ != 0 && !keeps_block(stream)) {
        lock.unlock();
        synchronize(context);  // its earlier launches end, and their memory is another's alone
        lock.lock();
    }
    if (uses_ == 0) map(context, stream);
    ++uses_;
}

void GraphMemory::end_use() {
    std::lock_guard lock(mutex_);
    if (--uses_ != 0) return;
    block_ = nullptr;
    if (const RegionPtr region = memory_map().remove(address_); region != nullptr) dispose(*region);
}

void GraphMemory::pass_on(const Stream& stream) {
    std::lock_guard lock(mutex_);
    if (block_ == nullptr) return;  // the stream has come to the free already
    std::lock_guard registry_lock(graph_memory_registry().mutex);
    if (block_->holder != this) return;
    block_->holder = nullptr;
    block_->stream_id = stream.id;
    graph_memory_registry().passed_on.push_back(block_);
}

// Whether a further launch may use the memory of those before it: none but these has been given it since.
bool GraphMemory::keeps_block(const Stream& stream) const {
    std::lock_guard lock(graph_memory_registry().mutex);
    if (block_->holder == nullptr && block_->stream_id == stream.id) block_->holder = this;
    return block_->holder == this;
}

void GraphMemory::map(Context& context, const Stream& stream) {
    auto [block, physical] = take_passed_on(stream, *this);
    if (block == nullptr) {
        physical = Physical::create(device_.memory, bytes_);
        if (physical == nullptr) {
            synchronize(context);  // frees on their way make room
            physical = Physical::create(device_.memory, bytes_);
        }
        require(physical != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
        block = std::make_shared<GraphBlock>(GraphBlock{&device_, physical, this});
    }
    const auto region = new_region(Region::Kind::Async, bytes_, device_, context);
    region->address = address_;
    region->graph_memory = shared_from_this();
    region->physical = std::move(physical);
    require(region->physical->map(other_side(address_), PROT_READ | PROT_WRITE), CUDA_ERROR_OUT_OF_MEMORY);
    memory_map().insert(region);
    block_ = std::move(block);
    const std::uint64_t used = graph_memory_used(device_);
    std::lock_guard lock(graph_memory_registry().mutex);
    std::uint64_t& high = graph_memory_registry().high[device_.ordinal];
    high = std::max(high, used);
}

std::shared_ptr<GraphMemory> create_graph_memory(Device& device, std::uint64_t bytes) {
    require(bytes < kDeviceWindowEnd - kDeviceWindowBegin, CUDA_ERROR_OUT_OF_MEMORY);
    auto memory = std::make_shared<GraphMemory>(device, bytes);
    std::lock_guard lock(graph_memory_registry().mutex);
    graph_memory_registry().by_address.emplace(memory->address(), memory);
    return memory;
}

std::shared_ptr<GraphMemory> graph_memory_at(std::uint64_t address, std::uint64_t bytes) {
    if (g_count == 0) return nullptr;
    std::lock_guard lock(graph_memory_registry().mutex);
    auto it = graph_memory_registry().by_address.upper_bound(address);
    if (it == graph_memory_registry().by_address.begin()) return nullptr;
    auto memory = std::prev(it)->second.lock();
    return memory != nullptr && address + bytes <= memory->address() + memory->bytes() ? memory : nullptr;
}

std::uint64_t graph_memory_used(const Device& device) {
    std::set<const Physical*> blocks;  // addresses share them
    for (const RegionPtr& region :
         memory_map().overlapping(kDeviceWindowBegin, kDeviceWindowEnd - kDeviceWindowBegin)) {
        if (region->graph_memory != nullptr && region->device == &device)
            blocks.insert(region->physical.get());
    }
    std::uint64_t used = 0;
    for (const Physical* block : blocks) used += block->bytes();
    return used;
}

std::uint64_t graph_memory_high(const Device& device) {
    std::lock_guard lock(graph_memory_registry().mutex);
    return graph_memory_registry().high[device.ordinal];
}

void reset_graph_memory_high(const Device& device) {
    const std::uint64_t used = graph_memory_used(device);
    std::lock_guard lock(graph_memory_registry().mutex);
    graph_memory_registry().high[device.ordinal] = used;
}

}  // namespace simcuda::driver
