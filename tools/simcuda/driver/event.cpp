#include "tools/simcuda/driver/event.h"

#include <chrono>
#include <thread>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/graph/capture.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/ipc.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

Handles<Event>& events_by_handle() {
    static auto& events_by_handle = *new Handles<Event>;
    return events_by_handle;
}

// Another process's record is a number in shared memory, which grows.

void record_shared(Stream& stream, const std::shared_ptr<SharedEvent>& event) {
    require(stream.capture == nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const std::uint64_t number = event->begin_record();
    submit(stream, ActionOp{[event, number] { event->complete(number); }});
}

void wait_shared(Stream& stream, const SharedEvent& event) {
    require(stream.capture == nullptr, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    submit(stream, ValueOp{true, event.counter_address(), event.latest(), 8, CU_STREAM_WAIT_VALUE_GEQ});
}

constexpr auto kPoll = std::chrono::microseconds(50);

}  // namespace

WorkPtr latest_record(Event& event) {
    const CUresult allowed = capture_check_query(event);
    require(allowed == CUDA_SUCCESS, allowed);
    std::lock_guard lock(event.mutex);
    return event.record;
}

bool is_reached(Event& event) {
    if (event.shared != nullptr) return event.shared->reached(event.shared->latest());
    return is_done(latest_record(event));
}

CUresult synchronize(Context& context, Event& event) {
    if (event.shared == nullptr) return wait(context, latest_record(event));
    const std::uint64_t number = event.shared->latest();
    while (!event.shared->reached(number)) std::this_thread::sleep_for(kPoll);
    return context.error();
}

std::shared_ptr<Event> create_event(const std::shared_ptr<Context>& context, unsigned flags,
                                    std::shared_ptr<SharedEvent> shared) {
    auto event = std::make_shared<Event>();
    event->context = context;
    event->flags = flags;
    event->shared = std::move(shared);
    events_by_handle().add(event);
    return event;
}

void destroy_event(CUevent handle) {
    require(events_by_handle().remove(handle) != nullptr, CUDA_ERROR_INVALID_HANDLE);
}

void forget_events(const Context& context) {
    events_by_handle().remove_if([&](const Event& event) { return event.context.lock().get() == &context; });
}

std::shared_ptr<Event> checked_event(CUevent handle) {
    auto event = events_by_handle().find(handle);
    require(event != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return event;
}

bool is_event(CUevent handle) {
    return events_by_handle().find(handle) != nullptr;
}

void record_event(Stream& stream, Event& event) {
    require(event.context.lock().get() == &stream.context, CUDA_ERROR_INVALID_HANDLE);
    if (event.shared != nullptr) return record_shared(stream, event.shared);
    if (Capture* capture = stream.capture.load(); capture != nullptr) {
        capture->record_event(stream, event);
        return;
    }
    WorkPtr work = submit(stream, MarkerOp{});
    std::lock_guard lock(event.mutex);
    event.record = std::move(work);
    event.captured.reset();
}

void record_event(Context& context, Event& event) {
    require(event.context.lock().get() == &context && event.shared == nullptr, CUDA_ERROR_INVALID_HANDLE);
    WorkPtr work = submit_behind(context);
    std::lock_guard lock(event.mutex);
    event.record = std::move(work);
    event.captured.reset();
}

void wait_event(Stream& stream, Event& event) {
    if (event.shared != nullptr) return wait_shared(stream, *event.shared);
    if (capture_wait_event(stream, event)) return;
    WorkPtr record;
    {
        std::lock_guard lock(event.mutex);
        record = event.record;
    }
    if (record != nullptr) submit(stream, MarkerOp{}, {record});
}

}  // namespace simcuda::driver
