// An event: what a CUevent points to.
#pragma once

#include <memory>
#include <mutex>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class SharedEvent;
struct CapturedEvent;  // capture.cpp's: where in which capture the event was recorded

struct Event {
    std::weak_ptr<Context> context;
    unsigned flags = 0;
    std::shared_ptr<SharedEvent> shared;  // CU_EVENT_INTERPROCESS: then `record` below is not used
    CUevent handle() { return reinterpret_cast<CUevent>(this); }

    std::mutex mutex;  // guards what follows
    WorkPtr record;    // the latest record; null: never recorded
    std::shared_ptr<CapturedEvent> captured;
};

std::shared_ptr<Event> create_event(const std::shared_ptr<Context>& context, unsigned flags,
                                    std::shared_ptr<SharedEvent> shared = nullptr);
void destroy_event(CUevent handle);          // throws like checked_event
void forget_events(const Context& context);  // their handles are no longer valid

// Records the event behind the stream's work (or in its capture). Throws Failure with
// CUDA_ERROR_INVALID_HANDLE if the two are of different contexts.
void record_event(Stream& stream, Event& event);

// The same behind the work of all streams of the event's context.
void record_event(Context& context, Event& event);

// Makes the stream's later work wait for the event's latest record; nothing if it was never recorded.
void wait_event(Stream& stream, Event& event);

// Whether the latest record was reached; blocks until it is. For events of several processes, too.
WorkPtr latest_record(Event& event);  // of this process only; null: none. Throws Failure for captured ones
bool is_reached(Event& event);
CUresult synchronize(Context& context, Event& event);

// Throws Failure with CUDA_ERROR_INVALID_HANDLE for anything that is not a live event.
std::shared_ptr<Event> checked_event(CUevent handle);
bool is_event(CUevent handle);

}  // namespace simcuda::driver
