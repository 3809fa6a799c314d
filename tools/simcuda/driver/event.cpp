#include "tools/simcuda/driver/event.h"

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

Handles<Event>& handles() {
    static auto& handles = *new Handles<Event>;
    return handles;
}

}  // namespace

std::shared_ptr<Event> create_event(const std::shared_ptr<Context>& context, unsigned flags) {
    auto event = std::make_shared<Event>();
    event->context = context;
    event->flags = flags;
    handles().add(event);
    return event;
}

void destroy_event(CUevent handle) {
    require(handles().remove(handle) != nullptr, CUDA_ERROR_INVALID_HANDLE);
}

std::shared_ptr<Event> checked_event(CUevent handle) {
    auto event = handles().find(handle);
    require(event != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return event;
}

void record_event(Stream& stream, Event& event) {
    require(event.context.lock().get() == &stream.context, CUDA_ERROR_INVALID_HANDLE);
    if (Capture* capture = stream.capture.load(); capture != nullptr) {
        capture->record_event(stream, event);
        return;
    }
    WorkPtr work = submit(stream, MarkerOp{});
    std::lock_guard lock(event.mutex);
    event.record = std::move(work);
    event.captured.reset();
}

void wait_event(Stream& stream, Event& event) {
    if (capture_wait_event(stream, event)) return;
    WorkPtr record;
    {
        std::lock_guard lock(event.mutex);
        record = event.record;
    }
    if (record != nullptr) submit(stream, MarkerOp{}, {record});
}

}  // namespace simcuda::driver
