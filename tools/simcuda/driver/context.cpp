#include "tools/simcuda/driver/context.h"

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/array.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/ipc.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/library.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/per_thread.h"
#include "tools/simcuda/driver/pool.h"
#include "tools/simcuda/driver/scheduler.h"
#include "tools/simcuda/driver/stream.h"
#include "tools/simcuda/driver/texture.h"

namespace simcuda::driver {
namespace {

Handles<Context>& contexts_by_handle() {
    static auto& contexts_by_handle = *new Handles<Context>;
    return contexts_by_handle;
}

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> next{1};
    return next++;
}

std::vector<std::shared_ptr<Context>>& context_stack() {
    static auto& stacks = *new PerThread<std::vector<std::shared_ptr<Context>>>;
    return stacks.get();
}

}  // namespace

Context::Context(Device& device, unsigned context_flags, bool primary)
    : usages(primary ? 0 : 1), flags(context_flags), device_(device), primary_(primary), id_(next_id()) {
    for (auto& limit : limits) limit = 0;
    limits[CU_LIMIT_STACK_SIZE] = 1024;
    limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    charge(knobs().context_bytes);
    legacy_ = std::make_shared<Stream>(*this, Stream::Kind::Legacy, CU_STREAM_DEFAULT, 0);
    streams.push_back(legacy_);
}

Context::~Context() {
    device_.memory.refund(charged_);
}

void Context::fail(CUresult error) {
    CUresult none = CUDA_SUCCESS;
    error_.compare_exchange_strong(none, error, std::memory_order_acq_rel);
}

void Context::charge(std::uint64_t bytes) {
    require(device_.memory.charge(bytes), CUDA_ERROR_OUT_OF_MEMORY);
    std::lock_guard lock(mutex_);
    charged_ += bytes;
}

void Context::refund(std::uint64_t bytes) {
    device_.memory.refund(bytes);
    std::lock_guard lock(mutex_);
    charged_ -= bytes;
}

void Context::reserve_local(std::uint64_t bytes_per_thread) {
    std::lock_guard lock(mutex_);
    if (bytes_per_thread <= local_bytes_per_thread_) return;
    const std::uint64_t more = (bytes_per_thread - local_bytes_per_thread_) * knobs().local_threads;
    require(device_.memory.charge(more), CUDA_ERROR_OUT_OF_MEMORY);
    local_bytes_per_thread_ = bytes_per_thread;
    charged_ += more;
}

std::shared_ptr<Stream> Context::per_thread_stream() {
    std::shared_ptr<Stream> stream;
    {
        std::lock_guard lock(mutex_);
        auto& slot = per_thread_[std::this_thread::get_id()];
        if (slot != nullptr) return slot;
        slot = std::make_shared<Stream>(*this, Stream::Kind::PerThread, CU_STREAM_DEFAULT, 0);
        stream = slot;
    }
    std::lock_guard lock(work_mutex());
    streams.push_back(stream);
    return stream;
}

bool Context::enable_peer(const Context& peer) {
    std::lock_guard lock(mutex_);
    return peers_.insert(peer.id()).second;
}

bool Context::disable_peer(const Context& peer) {
    std::lock_guard lock(mutex_);
    return peers_.erase(peer.id()) != 0;
}

void Context::at_destroy(std::function<void()> action) {
    std::lock_guard lock(mutex_);
    at_destroy_.push_back(std::move(action));
}

void Context::destroy() {
    synchronize(*this);
    forget_streams(*this);
    forget_events(*this);
    forget_textures(*this);
    forget_arrays(*this);
    forget_shared(*this);
    forget_libraries(*this);
    std::vector<std::function<void()>> actions;
    {
        std::lock_guard lock(mutex_);
        actions.swap(at_destroy_);
    }
    for (auto action = actions.rbegin(); action != actions.rend(); ++action) (*action)();
    for (const RegionPtr& region : memory_map().remove_of(*this)) {
        dispose(*region);
        if (region->pool != nullptr) region->pool->forget(*region);
    }

    std::uint64_t charged = 0;
    {
        std::lock_guard lock(mutex_);
        std::swap(charged, charged_);
    }
    device_.memory.refund(charged);
}

Context* current_context() {
    const auto& stack = context_stack();
    return stack.empty() ? nullptr : stack.back().get();
}

void push_context(std::shared_ptr<Context> context) {
    context_stack().push_back(std::move(context));
}

std::shared_ptr<Context> pop_context() {
    auto& stack = context_stack();
    if (stack.empty()) return nullptr;
    auto context = std::move(stack.back());
    stack.pop_back();
    return context;
}

void set_context(std::shared_ptr<Context> context) {
    auto& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(std::move(context));
}

std::shared_ptr<Context> checked_context(CUcontext handle) {
    auto context = contexts_by_handle().find(handle);
    require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    return context;
}

bool is_live(const Context* context) {
    return contexts_by_handle().find(context) != nullptr;
}

std::vector<std::shared_ptr<Context>> contexts_of(const Device& device) {
    return contexts_by_handle().select([&](const Context& context) { return &context.device() == &device; });
}

std::shared_ptr<Context> create_context(Device& device, unsigned flags, bool primary) {
    auto context = std::make_shared<Context>(device, flags, primary);
    contexts_by_handle().add(context);
    return context;
}

void destroy_context(const std::shared_ptr<Context>& context) {
    contexts_by_handle().remove(context.get());
    context->destroy();
}

}  // namespace simcuda::driver
