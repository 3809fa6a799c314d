// A GPU in memory, as strict as a real one and as adversarial as a seed can make it: device::Port for the
// tests of the engine, with app streams whose kernels are functions.
//
// Nothing runs by itself: each call of the port, from any thread, first lets a random amount of the queued
// work run, in pieces, over randomly chosen streams. So the interleaving of a single-threaded test depends on
// its seed alone.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shim/device/port.h"
#include "tests/support/fake_memory.h"

namespace lms::fake {

struct Options {
    std::uint64_t granularity = 64;
    std::uint64_t device_bytes = 128 * 64;
    bool maps_host = true;
    std::uint64_t seed = 1;
    std::uint64_t address_bytes = UINT64_MAX;  // the most that can be reserved at once
    bool remaps_wait = false;                  // unmap() waits for all work, and that is known
};

// The calls that can be counted and made to fail.
enum class Call {
    Info,
    Create,
    Release,
    Map,
    Admit,
    Unmap,
    Pin,
    Unpin,
    Copy,
    Set,
    Record,
    Query,
    Wait,
    WaitForStream,
    kCount
};

// One piece of a kernel's work; true when it was the last. Runs under the port's lock: it must not call the
// port.
using Kernel = std::function<bool(Memory&)>;

// What a stream has reached.
struct Marker {
    bool passed = false;
};
using MarkerPtr = std::shared_ptr<Marker>;

class FakePort final : public device::Port {
  public:
    explicit FakePort(const Options& options);
    ~FakePort() override;

    std::uint64_t granularity() const override { return memory_.granularity(); }
    bool maps_host_memory() const override { return memory_.maps_host(); }
    CUresult memory_info(device::MemoryInfo& info) override;
    CUresult reserve(std::uint64_t bytes, Address& address) override;
    CUresult unreserve(Address address, std::uint64_t bytes) override;
    CUresult create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle) override;
    CUresult release(CUmemGenericAllocationHandle handle) override;
    CUresult map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                 Place place) override;
    CUresult unmap(Address address, std::uint64_t bytes) override;
    CUresult discard(Address address, std::uint64_t bytes) override;
    bool settle() override;
    // Whoever may reach it, its kernels do.
    CUresult map_for(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                     std::span<const CUmemAccessDesc>) override;
    CUresult set_access(Address address, std::uint64_t bytes, std::span<const CUmemAccessDesc>) override;
    bool add_peer(CUdevice device) override { return peers_.insert(device).second; }
    void remove_peer(CUdevice device) override { peers_.erase(device); }
    bool has_peer(CUdevice device) const { return peers_.contains(device); }
    CUresult admit(Address address, std::uint64_t bytes, Place place) override;
    CUresult pin(std::uint64_t bytes, Address& host) override;
    CUresult unpin(Address host) override;
    CUresult copy(Address destination, Address source, std::uint64_t bytes,
                  device::Direction direction) override;
    CUresult set(Address destination, std::uint8_t value, std::uint64_t bytes,
                 device::Direction direction) override;
    CUstream stream(device::Direction direction) const override;
    bool remaps_were_seen_to_wait() const override { return remaps_wait_; }
    CUresult record(CUstream stream, CUevent& event) override;
    CUresult record_again(CUstream stream, CUevent event) override;
    CUresult record_legacy(CUcontext, CUevent& event) override { return record(CU_STREAM_LEGACY, event); }
    CUresult record_behind_legacy(CUcontext, CUevent& event) override {
        return record(CU_STREAM_LEGACY, event);
    }
    CUresult record_context(CUcontext, CUevent&) override { return CUDA_ERROR_NOT_SUPPORTED; }
    CUresult query(CUevent event) override;
    CUresult query_stream(CUstream stream) override;
    CUresult query_legacy(CUcontext) override {
        return legacy_is_forbidden_ ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : query_stream(CU_STREAM_LEGACY);
    }
    void recycle(CUevent event) override;
    CUresult wait_in_stream(CUstream stream, CUevent event) override;
    CUresult health() override;
    CUresult wait_for_stream(CUstream stream) override;
    // Contexts are the driver's: here they are what host memory is pinned in.
    CUcontext current_context() override { return nullptr; }
    CUresult work_through(CUcontext) override;
    void leave(CUcontext) override {}
    std::optional<device::DeviceTime> time_of_copy(Address) override {
        const std::uint64_t ns = copy_ns_.load();
        return ns == 0 ? std::nullopt : std::optional(device::DeviceTime{0, ns});
    }

    // The program's side.

    // Those are destroyed that are not worked through any more, and what was pinned there is gone.
    void destroy_contexts();
    CUstream create_stream();
    // What was submitted runs to its end; the handle is the next that create_stream() gives.
    void destroy_stream(CUstream stream);
    void launch(CUstream stream, Kernel kernel);
    // A marker that passes when `stream` has done all that was submitted to it, and work that waits for one.
    MarkerPtr mark(CUstream stream);
    void wait_for(CUstream stream, MarkerPtr marker);
    // Runs queued work until the marker has passed; until there is none.
    void finish(const MarkerPtr& marker);
    void finish_all();
    // Runs `count` pieces of queued work, or as many as can run.
    void run(std::size_t count);

    // The n-th call of that kind from now on (1 is the next), and those that follow until so many have, fails
    // with `status`, without effect.
    void fail(Call call, std::uint64_t nth, CUresult status, std::uint64_t times = 1);
    // What each of the shim's copies is told to have taken from now on; at first nothing is told.
    void copies_take(std::uint64_t ns) { copy_ns_ = ns; }
    // A capture forbids to ask for the legacy stream from now on, or does no more.
    void forbid_legacy(bool forbidden) { legacy_is_forbidden_ = forbidden; }
    // What health() says from now on.
    void fall_ill(CUresult status);
    // action() runs within that call, on its thread, before it takes effect: another thread's chance, forced.
    void at(Call call, std::uint64_t nth, std::function<void()> action);
    // The same, before memory of that place is next taken away from an address in [begin, end).
    void before_unmap(Address begin, Address end, Place place, std::function<void()> action);
    // What is in [begin, end) never leaves the device from now on: no host memory is mapped there, and where
    // there is none to be mapped, nothing is unmapped. No address twice: everything does again.
    void holds_on_to(Address begin, Address end);
    // Nothing is mapped in [begin, end) from now on, so that what is unmapped there stays so. The same.
    void maps_nothing(Address begin, Address end);
    std::uint64_t calls(Call call) const;
    std::uint64_t all_calls() const;
    // Calls of unmap() that had to wait for work of the program's streams.
    std::uint64_t unmaps_held_up() const;
    std::size_t live_events() const;

    // Calls look(memory) under the lock.
    template <typename Look>
    auto with_memory(Look&& look) {
        const std::lock_guard lock(mutex_);
        return look(memory_);
    }
    // The first rule broken, empty if none was.
    std::string violation() const;

  private:
    struct Operation {
        Kernel run;         // null: a marker or a wait
        MarkerPtr reaches;  // passes here
        MarkerPtr waits_for;
    };
    struct Queue {
        std::deque<Operation> operations;
        std::uint64_t submitted = 0;
        std::uint64_t done = 0;
    };
    struct Event {
        MarkerPtr marker;
        bool live = false;
    };
    // What one kind of call did and is to do.
    struct Script {
        std::uint64_t calls = 0;
        std::uint64_t fails_at = 0;
        std::uint64_t fails = 0;  // how many
        CUresult fails_with = CUDA_SUCCESS;
        std::uint64_t acts_at = 0;
        std::function<void()> action;
    };
    using Lock = std::unique_lock<std::mutex>;

    // Every call begins with this: lets work run, counts, and says whether the call is to fail.
    CUresult begin(Call call, Lock& lock);
    CUresult map_alone(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                       Place place);
    void act(std::function<void()>& action, Lock& lock);
    void progress();
    void finish(const std::vector<std::pair<const Queue*, std::uint64_t>>& targets, Lock& lock);
    bool step();
    Script& script(Call call) { return scripts_[static_cast<std::size_t>(call)]; }
    Queue* queue_of(CUstream stream);
    CUresult enqueue(CUstream stream, Operation operation);
    Event* known(CUevent event);
    std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
    // Lets other threads in, at random: calls take time.
    void dawdle(Lock& lock);

    void wait_for_all_work();

    const std::uint64_t address_bytes_;
    const bool remaps_wait_;
    std::uint64_t unmaps_held_up_ = 0;
    std::atomic<std::uint64_t> copy_ns_{0};
    std::atomic<bool> legacy_is_forbidden_{false};
    mutable std::mutex mutex_;
    Memory memory_;
    std::vector<std::pair<Address, std::uint64_t>> owed_;  // unmaps to be tried again
    std::vector<CUmemGenericAllocationHandle> unreleased_;
    std::set<CUdevice> peers_;
    CUcontext context_ = nullptr;
    std::map<Address, CUcontext> pinned_;  // host memory, and the context that it goes with
    bool settle(Lock& lock);
    std::mt19937_64 random_;
    Address watched_begin_ = 0;
    Address watched_end_ = 0;
    Place watched_place_ = Place::Device;
    std::function<void()> before_unmap_;
    Address held_begin_ = 0;
    Address held_end_ = 0;
    Address refused_begin_ = 0;
    Address refused_end_ = 0;
    CUresult health_ = CUDA_SUCCESS;
    std::uint64_t eagerness_;  // how much runs in each call
    std::vector<std::unique_ptr<Queue>> queues_;
    std::map<CUstream, Queue*> streams_;
    Queue* stalled_ = nullptr;
    std::vector<CUstream> free_handles_;
    std::uintptr_t next_handle_ = 0x1000;
    std::vector<std::unique_ptr<Event>> events_;
    std::array<Script, static_cast<std::size_t>(Call::kCount)> scripts_;
};

}  // namespace lms::fake
