#include "tests/support/fake_port.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace lms::fake {

namespace {

const CUstream kIn = reinterpret_cast<CUstream>(0x100);
const CUstream kOut = reinterpret_cast<CUstream>(0x200);

}  // namespace

FakePort::FakePort(const Options& options)
    : address_bytes_(options.address_bytes),
      remaps_wait_(options.remaps_wait),
      memory_(options.granularity, options.device_bytes, options.maps_host, options.seed),
      random_(options.seed * 0x9E3779B97F4A7C15ull + 1),
      eagerness_(below(4)) {
    for (const CUstream stream : {kIn, kOut, CU_STREAM_LEGACY}) {
        queues_.push_back(std::make_unique<Queue>());
        streams_[stream] = queues_.back().get();
    }
}

FakePort::~FakePort() = default;

CUresult FakePort::begin(Call call, Lock& lock) {
    progress();
    Script& mine = script(call);
    const std::uint64_t number = ++mine.calls;
    if (number == mine.acts_at) act(mine.action, lock);
    return mine.fails_at <= number && number < mine.fails_at + mine.fails ? mine.fails_with : CUDA_SUCCESS;
}

// Once, without the lock: it may call the port.
void FakePort::act(std::function<void()>& action, Lock& lock) {
    const std::function<void()> taken = std::exchange(action, nullptr);
    lock.unlock();
    taken();
    lock.lock();
}

void FakePort::progress() {
    constexpr std::uint64_t kMost[] = {1, 3, 10, 60};
    for (std::uint64_t count = below(kMost[eagerness_] + 1); count > 0 && step(); --count) continue;
}

// One piece of one stream's work; false when none can run.
bool FakePort::step() {
    // A stalled stream gets nothing for a while, unless there is nothing else to do.
    if (below(40) == 0) stalled_ = below(2) ? nullptr : queues_[below(queues_.size())].get();
    std::vector<Queue*> ready;
    for (const auto& queue : queues_) {
        if (queue->operations.empty()) continue;
        const Operation& head = queue->operations.front();
        if (!head.waits_for || head.waits_for->passed) ready.push_back(queue.get());
    }
    if (ready.empty()) return false;
    if (ready.size() > 1) std::erase(ready, stalled_);
    Queue& queue = *ready[below(ready.size())];
    Operation& head = queue.operations.front();
    if (head.run && !head.run(memory_)) return true;
    if (head.reaches) head.reaches->passed = true;
    queue.operations.pop_front();
    ++queue.done;
    return true;
}

void FakePort::dawdle(Lock& lock) {
    const std::uint64_t dice = below(16);
    if (dice > 4) return;
    lock.unlock();
    if (dice == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else {
        std::this_thread::yield();
    }
    lock.lock();
    progress();
}

CUresult FakePort::memory_info(device::MemoryInfo& info) {
    Lock lock(mutex_);
    // As of the beginning of the call: when the caller gets to see it, it is old.
    const device::MemoryInfo now{memory_.device_bytes() - memory_.used_bytes(), memory_.device_bytes()};
    if (const CUresult status = begin(Call::Info, lock)) return status;
    info = now;
    return CUDA_SUCCESS;
}

CUresult FakePort::reserve(std::uint64_t bytes, Address& address) {
    const Lock lock(mutex_);
    if (bytes > address_bytes_) return CUDA_ERROR_OUT_OF_MEMORY;
    return memory_.reserve(bytes, address);
}

CUresult FakePort::unreserve(Address address, std::uint64_t bytes) {
    const Lock lock(mutex_);
    return memory_.unreserve(address, bytes);
}

CUresult FakePort::create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Create, lock)) return status;
    dawdle(lock);
    return memory_.create(bytes, place, handle);
}

CUresult FakePort::release(CUmemGenericAllocationHandle handle) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Release, lock)) {
        unreleased_.push_back(handle);
        return status;
    }
    dawdle(lock);
    return memory_.release(handle);
}

CUresult FakePort::map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                       Place place) {
    const CUresult status = map_alone(address, bytes, handle, place);
    if (status == CUDA_SUCCESS) with_memory([&](Memory& memory) { memory.admit(address, bytes); });
    return status;
}

CUresult FakePort::map_alone(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                             Place place) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Map, lock)) return status;
    dawdle(lock);
    settle(lock);
    const bool held = held_begin_ <= address && address < held_end_;
    const bool refused = refused_begin_ <= address && address < refused_end_;
    if (refused || (held && place == Place::Host)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult status = memory_.map(address, bytes, handle, place);
    dawdle(lock);
    return status;
}

CUresult FakePort::map_for(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                           std::span<const CUmemAccessDesc> access) {
    const Place place = with_memory([&](Memory& memory) { return memory.place_of(handle); });
    return access.empty() ? map_alone(address, bytes, handle, place) : map(address, bytes, handle, place);
}

CUresult FakePort::set_access(Address address, std::uint64_t bytes, std::span<const CUmemAccessDesc>) {
    return with_memory([&](Memory& memory) { return memory.admit(address, bytes); });
}

CUresult FakePort::admit(Address address, std::uint64_t bytes, Place) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Admit, lock)) return status;
    dawdle(lock);
    return memory_.admit(address, bytes);
}

CUresult FakePort::unmap(Address address, std::uint64_t bytes) {
    if (missing().forget(address)) return CUDA_SUCCESS;
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Unmap, lock)) return status;
    Place place = Place::Host;
    if (held_begin_ <= address && address < held_end_ && !memory_.maps_host())
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (before_unmap_ && watched_begin_ <= address && address < watched_end_ &&
        memory_.where(address, place) && place == watched_place_) {
        act(before_unmap_, lock);
    }
    if (remaps_wait_) wait_for_all_work();
    dawdle(lock);
    const CUresult status = memory_.unmap(address, bytes);
    if (status == CUDA_SUCCESS) std::erase_if(owed_, [&](const auto& one) { return one.first == address; });
    dawdle(lock);
    return status;
}

// For so long: some of it may wait for the calling thread.
void FakePort::wait_for_all_work() {
    constexpr int kMost = 10'000;
    const auto unfinished = [](const auto& queue) { return !queue->operations.empty(); };
    // The first two are the port's own.
    if (std::any_of(queues_.begin() + 2, queues_.end(), unfinished)) ++unmaps_held_up_;
    for (int i = 0; i < kMost && std::ranges::any_of(queues_, unfinished) && step(); ++i) continue;
}

CUresult FakePort::discard(Address address, std::uint64_t bytes) {
    const CUresult status = unmap(address, bytes);
    const Lock lock(mutex_);
    if (status != CUDA_SUCCESS) owed_.emplace_back(address, bytes);
    return status;
}

bool FakePort::settle() {
    Lock lock(mutex_);
    return settle(lock);
}

bool FakePort::settle(Lock& lock) {
    std::erase_if(owed_, [&](const auto& one) {
        return begin(Call::Unmap, lock) == CUDA_SUCCESS &&
               memory_.unmap(one.first, one.second) == CUDA_SUCCESS;
    });
    std::erase_if(unreleased_, [&](CUmemGenericAllocationHandle handle) {
        return begin(Call::Release, lock) == CUDA_SUCCESS && memory_.release(handle) == CUDA_SUCCESS;
    });
    return owed_.empty() && unreleased_.empty();
}

CUresult FakePort::pin(std::uint64_t bytes, Address& host) {
    Lock lock(mutex_);
    const CUcontext context = context_;
    if (const CUresult status = begin(Call::Pin, lock)) return status;
    dawdle(lock);
    const CUresult status = memory_.pin(bytes, host);
    if (status == CUDA_SUCCESS) pinned_[host] = context;
    return status;
}

CUresult FakePort::unpin(Address host) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Unpin, lock)) return status;
    dawdle(lock);
    pinned_.erase(host);
    return memory_.unpin(host);
}

CUresult FakePort::work_through(CUcontext context) {
    const Lock lock(mutex_);
    context_ = context;
    return CUDA_SUCCESS;
}

void FakePort::destroy_contexts() {
    const Lock lock(mutex_);
    std::erase_if(pinned_, [&](const auto& each) {
        return each.second != context_ && memory_.unpin(each.first) == CUDA_SUCCESS;
    });
}

CUresult FakePort::copy(Address destination, Address source, std::uint64_t bytes,
                        device::Direction direction) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Copy, lock)) return status;
    dawdle(lock);
    const std::uint64_t piece = std::max<std::uint64_t>(1, bytes / (1 + below(4)));
    const auto piecewise = [=, done = std::uint64_t{0}](Memory& memory) mutable {
        const std::uint64_t count = std::min(piece, bytes - done);
        std::vector<std::uint8_t> carried(count);
        memory.read(source + done, carried.data(), count, Memory::Actor::Copy);
        memory.write(destination + done, carried.data(), count, Memory::Actor::Copy);
        done += count;
        return done == bytes;
    };
    return enqueue(stream(direction), {piecewise, nullptr, nullptr});
}

CUresult FakePort::set(Address destination, std::uint8_t value, std::uint64_t bytes,
                       device::Direction direction) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Set, lock)) return status;
    return enqueue(stream(direction), {[=](Memory& memory) {
                                           const std::vector<std::uint8_t> values(bytes, value);
                                           memory.write(destination, values.data(), bytes,
                                                        Memory::Actor::Copy);
                                           return true;
                                       },
                                       nullptr, nullptr});
}

CUstream FakePort::stream(device::Direction direction) const {
    return direction == device::Direction::In ? kIn : kOut;
}

FakePort::Queue* FakePort::queue_of(CUstream stream) {
    const auto it = streams_.find(stream);
    return it == streams_.end() ? nullptr : it->second;
}

CUresult FakePort::enqueue(CUstream stream, Operation operation) {
    Queue* queue = queue_of(stream);
    if (!queue) return memory_.broken("submit to an unknown stream", CUDA_ERROR_INVALID_HANDLE);
    queue->operations.push_back(std::move(operation));
    ++queue->submitted;
    return CUDA_SUCCESS;
}

FakePort::Event* FakePort::known(CUevent event) {
    const auto it = std::find_if(events_.begin(), events_.end(), [&](const auto& each) {
        return reinterpret_cast<CUevent>(each.get()) == event && each->live;
    });
    return it == events_.end() ? nullptr : it->get();
}

CUresult FakePort::record(CUstream stream, CUevent& event) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Record, lock)) return status;
    dawdle(lock);
    const auto marker = std::make_shared<Marker>();
    if (const CUresult status = enqueue(stream, {nullptr, marker, nullptr})) return status;
    auto it = std::find_if(events_.begin(), events_.end(), [](const auto& each) { return !each->live; });
    if (it == events_.end()) it = events_.insert(it, std::make_unique<Event>());
    **it = {marker, true};
    event = reinterpret_cast<CUevent>(it->get());
    return CUDA_SUCCESS;
}

CUresult FakePort::record_again(CUstream stream, CUevent event) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Record, lock)) return status;
    dawdle(lock);
    Event* const found = known(event);
    if (!found) return memory_.broken("record a recycled event", CUDA_ERROR_INVALID_HANDLE);
    const auto marker = std::make_shared<Marker>();
    if (const CUresult status = enqueue(stream, {nullptr, marker, nullptr})) return status;
    found->marker = marker;
    return CUDA_SUCCESS;
}

CUresult FakePort::query(CUevent event) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Query, lock)) return status;
    step();
    const Event* found = known(event);
    if (!found) return memory_.broken("query a recycled event", CUDA_ERROR_INVALID_HANDLE);
    return found->marker->passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult FakePort::query_stream(CUstream stream) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Query, lock)) return status;
    step();
    const Queue* queue = queue_of(stream);
    if (!queue) return memory_.broken("query an unknown stream", CUDA_ERROR_INVALID_HANDLE);
    return queue->operations.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void FakePort::recycle(CUevent event) {
    const Lock lock(mutex_);
    Event* found = known(event);
    if (!found) {
        memory_.broken("recycle an event twice");
        return;
    }
    *found = {};
}

CUresult FakePort::wait_in_stream(CUstream stream, CUevent event) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::Wait, lock)) return status;
    dawdle(lock);
    const Event* found = known(event);
    if (!found) return memory_.broken("wait for a recycled event", CUDA_ERROR_INVALID_HANDLE);
    return enqueue(stream, {nullptr, nullptr, found->marker});
}

CUresult FakePort::health() {
    const Lock lock(mutex_);
    return health_;
}

CUresult FakePort::wait_for_stream(CUstream stream) {
    Lock lock(mutex_);
    if (const CUresult status = begin(Call::WaitForStream, lock)) return status;
    const Queue* const queue = queue_of(stream);
    if (!queue) return memory_.broken("wait for an unknown stream", CUDA_ERROR_INVALID_HANDLE);
    finish({{queue, queue->submitted}}, lock);
    return CUDA_SUCCESS;
}

void FakePort::finish_all() {
    Lock lock(mutex_);
    std::vector<std::pair<const Queue*, std::uint64_t>> targets;
    for (const auto& queue : queues_) targets.emplace_back(queue.get(), queue->submitted);
    finish(targets, lock);
}

void FakePort::finish(const std::vector<std::pair<const Queue*, std::uint64_t>>& targets, Lock& lock) {
    const auto reached = [&] {
        return std::all_of(targets.begin(), targets.end(),
                           [](const auto& target) { return target.first->done >= target.second; });
    };
    while (!reached()) {
        step();
        dawdle(lock);
    }
}

CUstream FakePort::create_stream() {
    const Lock lock(mutex_);
    CUstream stream;
    if (free_handles_.empty()) {
        stream = reinterpret_cast<CUstream>(next_handle_ += 0x10);
    } else {
        stream = free_handles_.back();
        free_handles_.pop_back();
    }
    queues_.push_back(std::make_unique<Queue>());
    streams_[stream] = queues_.back().get();
    return stream;
}

void FakePort::destroy_stream(CUstream stream) {
    const Lock lock(mutex_);
    streams_.erase(stream);
    free_handles_.push_back(stream);
}

void FakePort::launch(CUstream stream, Kernel kernel) {
    const Lock lock(mutex_);
    progress();
    enqueue(stream, {std::move(kernel), nullptr, nullptr});
}

MarkerPtr FakePort::mark(CUstream stream) {
    const Lock lock(mutex_);
    auto marker = std::make_shared<Marker>();
    enqueue(stream, {nullptr, marker, nullptr});
    return marker;
}

void FakePort::wait_for(CUstream stream, MarkerPtr marker) {
    const Lock lock(mutex_);
    enqueue(stream, {nullptr, nullptr, std::move(marker)});
}

void FakePort::finish(const MarkerPtr& marker) {
    Lock lock(mutex_);
    while (!marker->passed) {
        step();
        dawdle(lock);
    }
}

void FakePort::run(std::size_t count) {
    const Lock lock(mutex_);
    while (count > 0 && step()) --count;
}

void FakePort::fail(Call call, std::uint64_t nth, CUresult status, std::uint64_t times) {
    const Lock lock(mutex_);
    script(call).fails_at = script(call).calls + nth;
    script(call).fails = times;
    script(call).fails_with = status;
}

void FakePort::fall_ill(CUresult status) {
    const Lock lock(mutex_);
    health_ = status;
}

void FakePort::at(Call call, std::uint64_t nth, std::function<void()> action) {
    const Lock lock(mutex_);
    script(call).acts_at = script(call).calls + nth;
    script(call).action = std::move(action);
}

void FakePort::before_unmap(Address begin, Address end, Place place, std::function<void()> action) {
    const Lock lock(mutex_);
    watched_begin_ = begin;
    watched_end_ = end;
    watched_place_ = place;
    before_unmap_ = std::move(action);
}

void FakePort::holds_on_to(Address begin, Address end) {
    const Lock lock(mutex_);
    held_begin_ = begin;
    held_end_ = end;
}

void FakePort::maps_nothing(Address begin, Address end) {
    const Lock lock(mutex_);
    refused_begin_ = begin;
    refused_end_ = end;
}

std::uint64_t FakePort::calls(Call call) const {
    const Lock lock(mutex_);
    return scripts_[static_cast<std::size_t>(call)].calls;
}

std::uint64_t FakePort::unmaps_held_up() const {
    const Lock lock(mutex_);
    return unmaps_held_up_;
}

std::uint64_t FakePort::all_calls() const {
    const Lock lock(mutex_);
    return std::accumulate(scripts_.begin(), scripts_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Script& each) { return sum + each.calls; });
}

std::size_t FakePort::live_events() const {
    const Lock lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(events_.begin(), events_.end(), [](const auto& event) { return event->live; }));
}

std::string FakePort::violation() const {
    const Lock lock(mutex_);
    return memory_.violations().empty() ? "" : memory_.violations().front();
}

}  // namespace lms::fake
