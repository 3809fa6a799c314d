// The port over the CUDA driver.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/device/device_times.h"
#include "shim/device/driver_table.h"
#include "shim/device/move_trial.h"
#include "shim/device/port.h"
#include "shim/util/mutex.h"

namespace lms::device {

class DriverPort final : public Port {
  public:
    // For `device`, through `context` (the program's; borrowed, and current in every call made here). Null,
    // and the driver's error, when the device lacks virtual memory management or a stream cannot be created.
    static std::unique_ptr<DriverPort> create_for(CUdevice device, CUcontext context, CUresult& error);
    // Destroys nothing on the device: the driver may have been unloaded before. work_through(nullptr) does.
    ~DriverPort() override = default;

    std::string name() const override;
    std::uint64_t granularity() const override { return granularity_; }
    bool maps_host_memory() const override { return maps_host_; }
    CUresult memory_info(MemoryInfo& info) override;
    CUresult reserve(std::uint64_t bytes, Address& address) override;
    CUresult unreserve(Address address, std::uint64_t bytes) override;
    CUresult create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle) override;
    CUresult release(CUmemGenericAllocationHandle handle) override;
    CUresult map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                 Place place) override;
    CUresult unmap(Address address, std::uint64_t bytes) override;
    CUresult discard(Address address, std::uint64_t bytes) override;
    bool settle() override;
    CUresult map_for(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                     std::span<const CUmemAccessDesc> access) override;
    CUresult set_access(Address address, std::uint64_t bytes,
                        std::span<const CUmemAccessDesc> access) override;
    bool add_peer(CUdevice device) override;
    void remove_peer(CUdevice device) override;
    CUresult admit(Address address, std::uint64_t bytes, Place place) override;
    CUresult pin(std::uint64_t bytes, Address& host) override;
    CUresult unpin(Address host) override;
    CUresult copy(Address destination, Address source, std::uint64_t bytes, Direction direction) override;
    CUresult set(Address destination, std::uint8_t value, std::uint64_t bytes, Direction direction) override;
    CUstream stream(Direction direction) const override { return direction == Direction::In ? in_ : out_; }
    void time_copies() override;
    void time_no_copies() override { times_copies_ = false; }
    std::optional<DeviceTime> time_of_copy(Address destination) override { return times_.take(destination); }
    std::uint64_t begin_timing(CUstream stream) override;
    void end_timing(std::uint64_t piece, CUstream stream) override;
    void drop_timing(std::uint64_t piece) override { times_.drop_work(piece); }
    std::optional<DeviceTime> time_of_work(std::uint64_t piece) override { return times_.take_work(piece); }
    CUresult record(CUstream stream, CUevent& event) override;
    CUresult record_again(CUstream stream, CUevent event) override;
    CUresult record_legacy(CUcontext context, CUevent& event) override;
    CUresult record_behind_legacy(CUcontext context, CUevent& event) override;
    CUresult record_context(CUcontext context, CUevent& event) override;
    // Of a driver that has answered none of these for seconds all is taken to be over (is_gone()).
    CUresult query_stream(CUstream stream) override;
    CUresult query_legacy(CUcontext context) override;
    CUresult query(CUevent event) override;
    void recycle(CUevent event) override;
    CUresult wait_in_stream(CUstream stream, CUevent event) override;
    bool tries_moves() const override { return true; }
    bool remaps_were_seen_to_wait() const override { return remaps_were_seen_to_wait_; }
    Trial try_moves(const std::optional<TrialMemory>& memory) override;
    void map_no_host_memory() override { maps_host_ = false; }
    CUresult health() override;
    CUresult wait_for_stream(CUstream stream) override;
    CUcontext current_context() override;
    CUresult work_through(CUcontext context) override;
    void leave(CUcontext context) override;

  private:
    // What a CUevent of this port's stands for. An event can be recorded in streams of its context only.
    struct Event {
        std::atomic<CUevent> handle;  // null after its context was destroyed
        CUcontext context;
        std::size_t index;  // in `used`, while it is
    };

    DriverPort(CUdevice device, CUcontext context) : device_(device), context_(context) {}
    CUresult probe();
    CUresult create_streams();
    std::vector<CUmemAccessDesc> access_to(Place place);
    CUresult record_in(CUcontext context, CUstream stream, CUevent& event);
    template <typename Record>
    CUresult record_by(CUcontext context, CUevent& event, Record&& record);
    CUevent handle_of(CUevent event);
    CUresult heard(CUresult status);
    template <typename Attribute>
    void probe_host_memory(const Attribute& attribute);
    bool probe_host_location(CUmemLocation location);
    CUmemAllocationProp properties(Place place) const;

    CUdevice device_;
    std::string bus_;                 // empty: not known
    std::atomic<CUcontext> context_;  // null between one that was destroyed and the next
    std::uint64_t granularity_ = 0;
    CUmemLocation host_location_{CU_MEM_LOCATION_TYPE_INVALID, 0};
    std::atomic<bool> maps_host_{false};
    bool decompress_ = false;
    bool remaps_were_seen_to_wait_ = false;
    std::atomic<CUstream> in_{nullptr};
    std::atomic<CUstream> out_{nullptr};
    struct Events {
        void take(Event* event) {
            event->index = used.size();
            used.push_back(event);
        }

        std::vector<Event*> used;
        std::vector<Event*> free;
        CUstream behind_legacy = nullptr;  // once one was wanted
    };
    // What the driver did not take back when it should have, and is asked to again.
    struct Owed {
        Address address;  // of a mapping of `bytes`, or
        std::uint64_t bytes;
        CUmemGenericAllocationHandle handle;
    };
    DeviceTimes times_;
    MoveTrial trial_{*this};
    util::Mutex owed_lock_{util::LockOrder::Driver};
    std::vector<Owed> owed_ LMS_GUARDED_BY(owed_lock_);
    std::atomic<bool> owes_{false};  // what is there
    void owe(Owed owed);
    util::Mutex peers_lock_{util::LockOrder::Leaf};
    std::vector<CUdevice> peers_ LMS_GUARDED_BY(peers_lock_);
    util::Mutex events_lock_{util::LockOrder::Leaf};
    std::unordered_map<CUcontext, Events> events_ LMS_GUARDED_BY(events_lock_);
    // Queries in a row whose answers said nothing, and since when (of the steady clock).
    std::atomic<std::uint32_t> unanswered_{0};
    std::atomic<std::int64_t> unanswered_since_{0};
    std::atomic<bool> said_unanswered_{false};
    std::atomic<bool> times_copies_{false};
};

}  // namespace lms::device
