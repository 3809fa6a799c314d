#include "tools/simcuda/driver/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/graph/graph_memory.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/ipc.h"
#include "tools/simcuda/driver/report.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

Handles<MemoryPool>& pools_by_handle() {
    static auto& pools_by_handle = *new Handles<MemoryPool>;
    return pools_by_handle;
}

}  // namespace

void MemoryPool::begin_free(CUdeviceptr address) {
    std::lock_guard lock(mutex);
    if (freeing.insert(address).second) return;
    violation("free of an allocation that is being freed already");
    throw Failure{CUDA_ERROR_INVALID_VALUE};
}

void MemoryPool::forget(const Region& region) {
    std::lock_guard lock(mutex);
    used -= region.physical->bytes();
    freeing.erase(region.address);
}

std::shared_ptr<MemoryPool> checked_pool(CUmemoryPool handle) {
    auto pool = pools_by_handle().find(handle);
    require(pool != nullptr, CUDA_ERROR_INVALID_VALUE);
    return pool;
}

std::shared_ptr<MemoryPool> create_pool(Device& device) {
    auto pool = std::make_shared<MemoryPool>(device);
    pools_by_handle().add(pool);
    return pool;
}

void destroy_pool(CUmemoryPool handle) {
    const auto pool = checked_pool(handle);
    require(pool != default_pool(pool->device), CUDA_ERROR_INVALID_VALUE);
    {
        std::lock_guard lock(pool->device.mutex);
        if (pool->device.current_pool == pool) pool->device.current_pool = pool->device.default_pool;
    }
    pools_by_handle().remove(handle);
}

std::shared_ptr<MemoryPool> default_pool(Device& device) {
    std::lock_guard lock(device.mutex);
    if (device.default_pool == nullptr) device.default_pool = create_pool(device);
    return device.default_pool;
}

std::shared_ptr<MemoryPool> current_pool(Device& device) {
    const auto fallback = default_pool(device);
    std::lock_guard lock(device.mutex);
    return device.current_pool != nullptr ? device.current_pool : fallback;
}

void set_current_pool(Device& device, std::shared_ptr<MemoryPool> pool) {
    require(&pool->device == &device && !pool->imported, CUDA_ERROR_INVALID_VALUE);
    std::lock_guard lock(device.mutex);
    device.current_pool = std::move(pool);
}

CUdeviceptr allocate_async(Stream& stream, const std::shared_ptr<MemoryPool>& pool, std::uint64_t bytes) {
    Context& context = stream.context;
    require(bytes != 0, CUDA_ERROR_INVALID_VALUE);
    require(!pool->imported, CUDA_ERROR_INVALID_VALUE);
    if (stream.capture != nullptr) {
        const auto memory = create_graph_memory(pool->device, bytes);
        submit(stream, ActionOp{nullptr, memory});
        return memory->address();
    }
    require_use_allowed(stream);
    {
        std::lock_guard lock(pool->mutex);
        require(pool->limit == 0 || pool->used + bytes <= pool->limit, CUDA_ERROR_OUT_OF_MEMORY);
    }
    RegionPtr region;
    try {
        region = allocate_device(context, bytes, Region::Kind::Async, pool);
    } catch (const Failure&) {
        synchronize(context);  // frees on their way make room
        region = allocate_device(context, bytes, Region::Kind::Async, pool);
    }
    std::lock_guard lock(pool->mutex);
    pool->used += region->physical->bytes();
    pool->high = std::max(pool->high, pool->used);
    return region->address;
}

namespace {
constexpr std::uint32_t kPoolMark = 0x4c4f4f50;
}

int export_pool(const MemoryPool& pool) {
    require(pool.shareable, CUDA_ERROR_INVALID_VALUE);
    const std::uint32_t content[] = {kPoolMark, static_cast<std::uint32_t>(pool.device.ordinal)};
    const int file = ::memfd_create("simcuda-pool", MFD_CLOEXEC);
    require(file >= 0 && ::write(file, content, sizeof content) == sizeof content, CUDA_ERROR_OUT_OF_MEMORY);
    return file;
}

std::shared_ptr<MemoryPool> import_pool(int file) {
    std::uint32_t content[2] = {};
    require(::pread(file, content, sizeof content, 0) == sizeof content && content[0] == kPoolMark,
            CUDA_ERROR_INVALID_VALUE);
    auto pool = create_pool(checked_device(static_cast<CUdevice>(content[1])));
    pool->imported = true;
    return pool;
}

CUdeviceptr import_allocation(Context& context, const std::shared_ptr<MemoryPool>& pool,
                              const SharedMemory& memory) {
    require(pool->imported && memory.mark == SharedMemory::kMark, CUDA_ERROR_INVALID_VALUE);
    const RegionPtr region = map_shared(context, memory, Region::Kind::Async, pool);
    std::lock_guard lock(pool->mutex);
    pool->used += region->physical->bytes();
    pool->high = std::max(pool->high, pool->used);
    return region->address;
}

bool free_to_pool(const Region& region) {
    const RegionPtr removed = memory_map().remove(region.address);
    if (removed == nullptr) return false;
    dispose(*removed);
    removed->pool->forget(*removed);
    return true;
}

namespace {

// What a graph allocated and left to the program.
void free_graph_memory(Stream& stream, const std::shared_ptr<GraphMemory>& memory, CUdeviceptr address) {
    require(memory->address() == address, CUDA_ERROR_INVALID_VALUE);
    if (stream.capture != nullptr) {
        submit(stream, ActionOp{nullptr, nullptr, memory});
        return;
    }
    require(memory->set_outstanding(false), CUDA_ERROR_INVALID_VALUE);
    submit(stream, ActionOp{[memory] { memory->end_use(); }});
}

}  // namespace

void free_async(Stream& stream, CUdeviceptr address) {
    if (const auto memory = graph_memory_at(address)) return free_graph_memory(stream, memory, address);
    require(stream.capture == nullptr, CUDA_ERROR_INVALID_VALUE);
    const RegionPtr region = memory_map().find(address);
    const bool freeable = region != nullptr && region->address == address &&
                          (region->kind == Region::Kind::Async || region->kind == Region::Kind::Device);
    if (!freeable) {
        violation("cuMemFreeAsync of something that is not the start of an allocation");
        throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
    if (region->kind == Region::Kind::Device) {
        submit(stream, ActionOp{[address] {
                   if (const RegionPtr removed = memory_map().remove(address); removed != nullptr)
                       dispose(*removed);
               }});
        return;
    }
    region->pool->begin_free(address);
    submit(stream, ActionOp{[region] { free_to_pool(*region); }});
}

}  // namespace simcuda::driver
