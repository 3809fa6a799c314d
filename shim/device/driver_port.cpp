#include "shim/device/driver_port.h"

#include <algorithm>
#include <utility>

#include "shim/device/host_mapping.h"
#include "shim/device/move_trial.h"
#include "shim/device/patience.h"
#include "shim/device/scope.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/dmem.h"
#include "shim/util/host_memory.h"
#include "shim/util/log.h"

namespace lms::device {
namespace {

bool is_default(CUstream stream) {
    return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUresult context_of(CUstream stream, CUcontext& context) {
    return is_default(stream) ? current_context(context) : driver().cuStreamGetCtx(stream, &context);
}

}  // namespace

std::unique_ptr<DriverPort> DriverPort::create_for(CUdevice device, CUcontext context, CUresult& error) {
    std::unique_ptr<DriverPort> port(new DriverPort(device, context));
    error = port->probe();
    if (error == CUDA_SUCCESS) return port;
    port->work_through(nullptr);
    return nullptr;
}

CUresult DriverPort::probe() {
    const InContext in_context(context_);
    const auto attribute = [&](CUdevice_attribute which) {
        int value = 0;
        return driver().cuDeviceGetAttribute(&value, which, device_) == CUDA_SUCCESS ? value : 0;
    };
    if (!attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return CUDA_ERROR_NOT_SUPPORTED;
    // cuMemAlloc's memory can be the target of hardware decompression, so ours must be too.
    decompress_ = attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK) != 0;
    char bus[32] = {};
    if (driver().cuDeviceGetPCIBusId(bus, sizeof bus, device_) == CUDA_SUCCESS) bus_ = bus;

    std::size_t granularity = 0;
    const CUmemAllocationProp device_memory = properties(Place::Device);
    CUresult status = driver().cuMemGetAllocationGranularity(&granularity, &device_memory,
                                                             CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (status != CUDA_SUCCESS) return status;
    granularity_ = granularity;
    if (status = create_streams(); status != CUDA_SUCCESS) return status;
    probe_host_memory(attribute);
    // What a context refuses that has failed says nothing about the device.
    return health();
}

// HOST needs CUDA 13; HOST_NUMA is older but needs get_mempolicy, which some containers forbid. Drivers
// refuse nodes without processors (NVIDIA/nccl#2190).
template <typename Attribute>
void DriverPort::probe_host_memory(const Attribute& attribute) {
    const int any = attribute(CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    const int by_node = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    // A process apart takes seconds to begin on a GPU.
    if (!any && !by_node) return;
    const ToldApart told = told_apart(device_);
    remaps_were_seen_to_wait_ = told.remaps_wait;
    if (!told.may_probe) return;
    if (any && probe_host_location({CU_MEM_LOCATION_TYPE_HOST, 0})) return;
    if (!by_node) return;
    for (const int node : util::numa_nodes_by_preference(attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)))
        if (probe_host_location({CU_MEM_LOCATION_TYPE_HOST_NUMA, node})) return;
}

CUresult DriverPort::create_streams() {
    CUstream in = nullptr;
    CUstream out = nullptr;
    CUresult status = driver().cuStreamCreate(&in, CU_STREAM_NON_BLOCKING);
    if (status != CUDA_SUCCESS) return status;
    status = driver().cuStreamCreate(&out, CU_STREAM_NON_BLOCKING);
    if (status != CUDA_SUCCESS) {
        driver().cuStreamDestroy_v2(in);
        return status;
    }
    in_ = in;
    out_ = out;
    return CUDA_SUCCESS;
}

// Attributes have been seen to promise what a container or a card then refuses, so it is tried once for real.
bool DriverPort::probe_host_location(CUmemLocation location) {
    host_location_ = location;
    std::size_t granularity = 0;
    const CUmemAllocationProp host_memory = properties(Place::Host);
    bool works = driver().cuMemGetAllocationGranularity(&granularity, &host_memory,
                                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS;
    const std::uint64_t common = std::max<std::uint64_t>(granularity, granularity_);
    CUmemGenericAllocationHandle handle{};
    Address address = 0;
    works = works && reserve(common, address) == CUDA_SUCCESS;
    if (works) {
        works = create(common, Place::Host, handle) == CUDA_SUCCESS;
        if (works) {
            works = map(address, common, handle, Place::Host) == CUDA_SUCCESS &&
                    unmap(address, common) == CUDA_SUCCESS;
            release(handle);
        }
        unreserve(address, common);
    }
    maps_host_ = works;
    if (works) {
        granularity_ = common;
    } else {
        host_location_ = {CU_MEM_LOCATION_TYPE_INVALID, 0};
    }
    return works;
}

CUmemAllocationProp DriverPort::properties(Place place) const {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location =
        place == Place::Host ? host_location_ : CUmemLocation{CU_MEM_LOCATION_TYPE_DEVICE, device_};
    if (place == Place::Device && decompress_) prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    return prop;
}

std::string DriverPort::name() const {
    char text[256] = "";
    return driver().cuDeviceGetName(text, sizeof text, device_) == CUDA_SUCCESS ? text : "";
}

CUresult DriverPort::memory_info(MemoryInfo& info) {
    const InContext in_context(context_);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    const CUresult status = driver().cuMemGetInfo_v2(&free_bytes, &total_bytes);
    if (status == CUDA_SUCCESS) info = {util::dmem_free_bytes(free_bytes, bus_), total_bytes};
    return status;
}

CUresult DriverPort::reserve(std::uint64_t bytes, Address& address) {
    const InContext in_context(context_);
    CUdeviceptr pointer = 0;
    const CUresult status = driver().cuMemAddressReserve(&pointer, bytes, granularity_, 0, 0);
    if (status == CUDA_SUCCESS) address = pointer;
    return status;
}

CUresult DriverPort::unreserve(Address address, std::uint64_t bytes) {
    const InContext in_context(context_);
    return driver().cuMemAddressFree(address, bytes);
}

CUresult DriverPort::create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle) {
    const InContext in_context(context_);
    const CUmemAllocationProp prop = properties(place);
    return driver().cuMemCreate(&handle, bytes, &prop, 0);
}

CUresult DriverPort::release(CUmemGenericAllocationHandle handle) {
    const InContext in_context(context_);
    const CUresult status = driver().cuMemRelease(handle);
    if (status != CUDA_SUCCESS) owe({0, 0, handle});
    return status;
}

void DriverPort::owe(Owed owed) {
    const util::Lock lock(owed_lock_);
    owed_.push_back(owed);
    owes_ = true;
}

bool DriverPort::settle() {
    const InContext in_context(context_);
    trial_.settle();
    const util::Lock lock(owed_lock_);
    std::erase_if(owed_, [](const Owed& one) {
        return (one.bytes ? driver().cuMemUnmap(one.address, one.bytes)
                          : driver().cuMemRelease(one.handle)) == CUDA_SUCCESS;
    });
    owes_ = !owed_.empty();
    return !owes_;
}

CUresult DriverPort::map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                         Place place) {
    return map_for(address, bytes, handle, access_to(place));
}

CUresult DriverPort::map_for(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                             std::span<const CUmemAccessDesc> access) {
    const InContext in_context(context_);
    // Something may be mapped there still.
    if (owes_) settle();
    CUresult status = driver().cuMemMap(address, bytes, 0, handle, 0);
    if (status != CUDA_SUCCESS || access.empty()) return status;
    status = set_access(address, bytes, access);
    if (status != CUDA_SUCCESS && driver().cuMemUnmap(address, bytes) != CUDA_SUCCESS)
        owe({address, bytes, 0});
    return status;
}

std::vector<CUmemAccessDesc> DriverPort::access_to(Place place) {
    std::vector<CUmemAccessDesc> access;
    const auto admit = [&](CUmemLocation location) {
        access.push_back({location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    };
    admit({CU_MEM_LOCATION_TYPE_DEVICE, device_});
    if (place == Place::Host) admit(host_location_);
    const util::Lock lock(peers_lock_);
    for (const CUdevice peer : peers_) admit({CU_MEM_LOCATION_TYPE_DEVICE, peer});
    return access;
}

CUresult DriverPort::set_access(Address address, std::uint64_t bytes,
                                std::span<const CUmemAccessDesc> access) {
    const InContext in_context(context_);
    // Under load the driver may answer "not ready" for a while.
    return patiently([&] { return driver().cuMemSetAccess(address, bytes, access.data(), access.size()); },
                     [](CUresult status) { return status != CUDA_ERROR_NOT_READY; });
}

bool DriverPort::add_peer(CUdevice device) {
    const util::Lock lock(peers_lock_);
    if (std::ranges::find(peers_, device) != peers_.end()) return false;
    peers_.push_back(device);
    return true;
}

void DriverPort::remove_peer(CUdevice device) {
    const util::Lock lock(peers_lock_);
    std::erase(peers_, device);
}

CUresult DriverPort::admit(Address address, std::uint64_t bytes, Place place) {
    return set_access(address, bytes, access_to(place));
}

CUresult DriverPort::unmap(Address address, std::uint64_t bytes) {
    if (missing().forget(address)) return CUDA_SUCCESS;
    const InContext in_context(context_);
    const CUresult status = driver().cuMemUnmap(address, bytes);
    if (status == CUDA_SUCCESS && owes_) {
        const util::Lock lock(owed_lock_);
        std::erase_if(owed_, [&](const Owed& one) { return one.bytes > 0 && one.address == address; });
        owes_ = !owed_.empty();
    }
    return status;
}

CUresult DriverPort::discard(Address address, std::uint64_t bytes) {
    const CUresult status = unmap(address, bytes);
    if (status != CUDA_SUCCESS) owe({address, bytes, 0});
    return status;
}

CUresult DriverPort::pin(std::uint64_t bytes, Address& host) {
    const InContext in_context(context_);
    void* pointer = nullptr;
    const CUresult status = driver().cuMemHostAlloc(&pointer, bytes, CU_MEMHOSTALLOC_PORTABLE);
    if (status == CUDA_SUCCESS) host = reinterpret_cast<Address>(pointer);
    return status;
}

CUresult DriverPort::unpin(Address host) {
    const InContext in_context(context_);
    return driver().cuMemFreeHost(reinterpret_cast<void*>(host));
}

CUresult DriverPort::copy(Address destination, Address source, std::uint64_t bytes, Direction direction) {
    const InContext in_context(context_);
    const CUstream in = stream(direction);
    DeviceTimes::Pair around;
    if (times_copies_) around = times_.begin(in);
    const CUresult status = driver().cuMemcpyAsync(destination, source, bytes, in);
    times_.end(around, in, direction, destination);
    return status;
}

CUresult DriverPort::set(Address destination, std::uint8_t value, std::uint64_t bytes, Direction direction) {
    const InContext in_context(context_);
    return driver().cuMemsetD8Async(destination, value, bytes, stream(direction));
}

void DriverPort::time_copies() {
    times_copies_ = true;
    const InContext in_context(context_);
    times_.start(in_);
}

// Elapsed times are told of events of one context.
std::uint64_t DriverPort::begin_timing(CUstream stream) {
    if (!times_copies_) return 0;
    CUcontext context = nullptr;
    if (context_of(stream, context) != CUDA_SUCCESS || context != context_) return 0;
    const InContext in_context(context);
    return times_.begin_work(stream);
}

void DriverPort::end_timing(std::uint64_t piece, CUstream stream) {
    const InContext in_context(context_);
    times_.end_work(piece, stream);
}

CUresult DriverPort::record(CUstream stream, CUevent& event) {
    if (stream == in_ || stream == out_) return record_in(context_, stream, event);
    CUcontext context = nullptr;
    CUresult status = context_of(stream, context);
    if (status == CUDA_ERROR_INVALID_CONTEXT) {
        // The thread has none. Of a stream that has one of its own the driver wants any.
        const InContext in_context(context_);
        status = driver().cuStreamGetCtx(stream, &context);
    }
    return status == CUDA_SUCCESS ? record_in(context, stream, event) : status;
}

CUresult DriverPort::record_legacy(CUcontext context, CUevent& event) {
    return record_in(context, CU_STREAM_LEGACY, event);
}

CUresult DriverPort::record_behind_legacy(CUcontext context, CUevent& event) {
    const InContext in_context(context);
    if (in_context.status() != CUDA_SUCCESS) return in_context.status();
    const auto known = [&]()
                           LMS_REQUIRES(events_lock_) -> CUstream& { return events_[context].behind_legacy; };
    CUstream stream = nullptr;
    {
        const util::Lock lock(events_lock_);
        stream = known();
    }
    if (!stream) {
        CUstream made = nullptr;
        const CUresult status = driver().cuStreamCreate(&made, CU_STREAM_DEFAULT);
        if (status != CUDA_SUCCESS) return status;
        {
            const util::Lock lock(events_lock_);
            if (!known()) known() = std::exchange(made, nullptr);
            stream = known();
        }
        // Another thread was first.
        if (made) driver().cuStreamDestroy_v2(made);
    }
    return record_in(context, stream, event);
}

namespace {

// A stream that is captured, or that a capture forbids to use, can be asked for that alone.
CUresult query_if_allowed(CUstream stream) {
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult status = driver().cuStreamIsCapturing(stream, &capture);
    if (status != CUDA_SUCCESS) return status;
    if (capture != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return driver().cuStreamQuery(stream);
}

}  // namespace

CUresult DriverPort::query_stream(CUstream stream) {
    const InContext in_context(context_);
    return heard(query_if_allowed(stream));
}

CUresult DriverPort::query_legacy(CUcontext context) {
    const InContext in_context(context);
    if (in_context.status() != CUDA_SUCCESS) return in_context.status();
    return heard(query_if_allowed(CU_STREAM_LEGACY));
}

CUresult DriverPort::record_in(CUcontext context, CUstream stream, CUevent& event) {
    return record_by(context, event, [&](CUevent handle) { return driver().cuEventRecord(handle, stream); });
}

CUresult DriverPort::record_context(CUcontext context, CUevent& event) {
    return record_by(context, event,
                     [&](CUevent handle) { return driver().cuCtxRecordEvent(context, handle); });
}

// What `record` leaves in an event of the context.
template <typename Record>
CUresult DriverPort::record_by(CUcontext context, CUevent& event, Record&& record) {
    const InContext in_context(context);
    if (in_context.status() != CUDA_SUCCESS) return in_context.status();
    Event* fence = nullptr;
    {
        const util::Lock lock(events_lock_);
        Events& events = events_[context];
        if (!events.free.empty()) {
            fence = events.free.back();
            events.free.pop_back();
            events.take(fence);
        }
    }
    CUresult status = CUDA_SUCCESS;
    if (!fence) {
        CUevent handle = nullptr;
        status = driver().cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING);
        if (status != CUDA_SUCCESS) return status;
        fence = new Event{handle, context, 0};
        const util::Lock lock(events_lock_);
        events_[context].take(fence);
    }
    status = record(fence->handle);
    if (status == CUDA_SUCCESS) {
        event = reinterpret_cast<CUevent>(fence);
    } else {
        recycle(reinterpret_cast<CUevent>(fence));
    }
    return status;
}

CUresult DriverPort::record_again(CUstream stream, CUevent event) {
    const InContext in_context(reinterpret_cast<Event*>(event)->context);
    if (in_context.status() != CUDA_SUCCESS) return in_context.status();
    const CUevent handle = handle_of(event);
    return handle ? driver().cuEventRecord(handle, stream) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Nobody could go on if that lasted.
CUresult DriverPort::heard(CUresult status) {
    using util::Clock;
    constexpr std::uint32_t kAsked = 100;  // who asks twice in an hour has not waited
    if (!says_nothing(status)) {
        if (unanswered_.load(std::memory_order_relaxed) > 0) unanswered_ = 0;
        return status;
    }
    const std::int64_t now = Clock::now().time_since_epoch().count();
    if (unanswered_++ == 0) unanswered_since_ = now;
    if (unanswered_ < kAsked || Clock::duration(now - unanswered_since_) < bounds::kUnanswered) return status;
    if (log::once(said_unanswered_))
        log::error("the driver answers every query with {}: the shim takes all work for complete",
                   error_name(status));
    return CUDA_ERROR_DEINITIALIZED;
}

// Null: its context is gone, and with it the work it stood for.
CUevent DriverPort::handle_of(CUevent event) {
    return reinterpret_cast<Event*>(event)->handle;
}

CUresult DriverPort::query(CUevent event) {
    const InContext in_context(context_);
    const CUevent handle = handle_of(event);
    const CUresult status = handle ? driver().cuEventQuery(handle) : CUDA_SUCCESS;
    if (times_copies_ && status == CUDA_SUCCESS) times_.collect();
    return heard(status);
}

void DriverPort::recycle(CUevent event) {
    Event* const fence = reinterpret_cast<Event*>(event);
    const util::Lock lock(events_lock_);
    if (!fence->handle) {
        delete fence;
        return;
    }
    Events& events = events_[fence->context];
    // In its place goes the last: there may be thousands, one for each launch under way.
    events.used.back()->index = fence->index;
    events.used[fence->index] = events.used.back();
    events.used.pop_back();
    events.free.push_back(fence);
}

CUresult DriverPort::wait_in_stream(CUstream stream, CUevent event) {
    const CUevent handle = handle_of(event);
    if (!handle) return CUDA_SUCCESS;
    // A default stream is the current context's; another knows its own.
    const InContext in_context(is_default(stream) ? current_context() : context_.load());
    return driver().cuStreamWaitEvent(stream, handle, CU_EVENT_WAIT_DEFAULT);
}

CUresult DriverPort::health() {
    const InContext in_context(context_);
    const CUstream in = in_;
    // Without a context there is none, and its handle would be the legacy stream's, whose use ends captures.
    if (!in) return CUDA_SUCCESS;
    const CUresult status = driver().cuStreamQuery(in);
    return refuses_all(status) ? status : CUDA_SUCCESS;
}

CUresult DriverPort::wait_for_stream(CUstream stream) {
    const InContext in_context(is_default(stream) ? current_context() : context_.load());
    // An error that does not stay says nothing. One by which the stream is gone is believed the second time.
    int gone = 0;
    return patiently([&] { return driver().cuStreamSynchronize(stream); },
                     [&](CUresult status) {
                         gone += is_gone(status);
                         return gone == 2 || status == CUDA_SUCCESS || refuses_all(status) ||
                                about_capture(status);
                     });
}

CUcontext DriverPort::current_context() {
    return device::current_context();
}

Trial DriverPort::try_moves(const std::optional<TrialMemory>& memory) {
    const InContext in_context(context_);
    if (in_context.status() != CUDA_SUCCESS) return {};
    return trial_.run(memory, nullptr);
}

CUresult DriverPort::work_through(CUcontext context) {
    const CUcontext before = context_;
    const CUstream streams[] = {in_, out_};
    trial_.give_back();
    if (context) {
        const InContext in_context(context);
        if (in_context.status() != CUDA_SUCCESS) return in_context.status();
        const CUresult status = create_streams();
        if (status != CUDA_SUCCESS) return status;
    } else {
        in_ = nullptr;
        out_ = nullptr;
    }
    context_ = context;
    times_.forget();
    if (context && times_copies_) time_copies();
    if (before) {
        const InContext in_context(before);
        for (const CUstream stream : streams) driver().cuStreamDestroy_v2(stream);
    }
    return CUDA_SUCCESS;
}

void DriverPort::leave(CUcontext context) {
    {
        const util::Lock lock(events_lock_);
        const auto it = events_.find(context);
        if (it != events_.end()) {
            for (Event* event : it->second.used) event->handle = nullptr;
            for (const Event* event : it->second.free) delete event;
            events_.erase(it);
        }
    }
    if (context_ != context) return;
    context_ = nullptr;
    in_ = nullptr;
    out_ = nullptr;
    times_.forget();
    trial_.leave();
}

}  // namespace lms::device
