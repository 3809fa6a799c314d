// A context: what a CUcontext points to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"

namespace simcuda::driver {

struct Device;
class Stream;

// Of cuCtxCreate and cuCtxSetFlags: at most one way to wait.
constexpr bool are_context_flags(unsigned flags) {
    constexpr unsigned kOthers = CU_CTX_MAP_HOST | CU_CTX_LMEM_RESIZE_TO_MAX | CU_CTX_SYNC_MEMOPS;
    const unsigned schedule = flags & CU_CTX_SCHED_MASK;
    return (flags & ~(CU_CTX_SCHED_MASK | kOthers)) == 0 && (schedule & (schedule - 1)) == 0;
}

constexpr bool is_cache_config(CUfunc_cache config) {
    return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}

constexpr bool is_shared_config(CUsharedconfig config) {
    return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
           config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
}

inline constexpr int kLeastPriority = 0, kGreatestPriority = -5;  // of streams

class Context : public std::enable_shared_from_this<Context> {
  public:
    // Throws Failure with CUDA_ERROR_OUT_OF_MEMORY when the device has no room for a context.
    Context(Device& device, unsigned flags, bool primary);
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    Device& device() const { return device_; }
    bool primary() const { return primary_; }
    std::uint64_t id() const { return id_; }
    CUcontext handle() { return reinterpret_cast<CUcontext>(this); }

    // The sticky error: CUDA_SUCCESS until fail() is called; the first failure stays for the context's life.
    CUresult error() const { return error_.load(std::memory_order_acquire); }
    void fail(CUresult error);

    // Device memory the driver itself takes: local memory, modules, streams, graphs. charge() throws Failure
    // with CUDA_ERROR_OUT_OF_MEMORY if there is no room. What is still charged goes back when the context
    // dies.
    void charge(std::uint64_t bytes);
    void refund(std::uint64_t bytes);

    // Grows the context's local memory to what a kernel needs (bytes per thread). Throws like charge().
    void reserve_local(std::uint64_t bytes_per_thread);

    std::shared_ptr<Stream> legacy_stream() const { return legacy_; }
    std::shared_ptr<Stream> per_thread_stream();  // the calling thread's, made at first use

    // Peer access. False if it already was as asked.
    bool enable_peer(const Context& peer);
    bool disable_peer(const Context& peer);

    // Every stream of the context, also destroyed ones whose work has not ended. Guarded by the scheduler's
    // mutex.
    std::vector<std::shared_ptr<Stream>> streams;

    // Runs when the context is destroyed, after its work has ended: unload modules, free pools.
    void at_destroy(std::function<void()> action);

    // Ends all work, frees the context's memory and runs at_destroy() actions; the object is unusable after.
    void destroy();

    // What cuCtxAttach and cuCtxDetach count; making the context counts, unless it is the primary one.
    std::atomic<unsigned> usages;
    std::atomic<unsigned> flags;
    std::array<std::atomic<std::size_t>, CU_LIMIT_MAX> limits;
    // Kernels were launched that use what the limits of the same name are about: these are fixed.
    std::atomic<bool> has_printed{false}, has_used_heap{false};
    std::atomic<CUfunc_cache> cache_config{CU_FUNC_CACHE_PREFER_NONE};
    std::atomic<CUsharedconfig> shared_config{CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE};

  private:
    Device& device_;
    const bool primary_;
    const std::uint64_t id_;
    std::atomic<CUresult> error_{CUDA_SUCCESS};
    std::shared_ptr<Stream> legacy_;

    std::mutex mutex_;  // guards what follows
    std::uint64_t charged_ = 0;
    std::uint64_t local_bytes_per_thread_ = 0;
    std::unordered_map<std::thread::id, std::shared_ptr<Stream>> per_thread_;
    std::vector<std::function<void()>> at_destroy_;
    std::set<std::uint64_t> peers_;  // ids of contexts
};

// The calling thread's stack of contexts. current() is null if there is none; a destroyed context stays on
// the stack as in CUDA and is reported by is_live().
Context* current_context();
void push_context(std::shared_ptr<Context> context);
std::shared_ptr<Context> pop_context();              // null if the stack is empty
void set_context(std::shared_ptr<Context> context);  // replaces the top; null pops it

// Throws Failure with CUDA_ERROR_INVALID_CONTEXT for anything that is not a live context.
std::shared_ptr<Context> checked_context(CUcontext handle);
bool is_live(const Context* context);

std::vector<std::shared_ptr<Context>> contexts_of(const Device& device);

std::shared_ptr<Context> create_context(Device& device, unsigned flags, bool primary);
void destroy_context(const std::shared_ptr<Context>& context);

}  // namespace simcuda::driver
