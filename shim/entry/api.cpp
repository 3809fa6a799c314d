// What a program asks of the shim itself: the functions of <lms/lms.h>, behind the one that is exported.
#include <lms/lms.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "shim/device/driver_table.h"
#include "shim/session/sessions.h"
#include "shim/trace/live_page.h"
#include "shim/trace/writer.h"
#include "shim/util/keep_errno.h"

namespace lms::entry {
namespace {

using session::Session;

// Runs the body of one of them; nothing it throws reaches the program.
template <typename Body>
int answered(Body&& body) noexcept {
    const util::KeepErrno keep;
    try {
        return body();
    } catch (const std::exception&) {
        return LMS_FAILED;
    }
}

int status_of(Session::Asked asked) {
    switch (asked) {
        case Session::Asked::Done:
            return LMS_OK;
        case Session::Asked::NotManaged:
            return LMS_NOT_MANAGED;
        case Session::Asked::NoRoom:
            return LMS_NO_ROOM;
        default:
            return LMS_BUSY;
    }
}

// The driver may be asked nothing there; where nothing is managed it is not asked whether.
bool in_host_function() {
    CUcontext context = nullptr;
    return !session::sessions().empty() &&
           device::driver().cuCtxGetCurrent(&context) == CUDA_ERROR_NOT_PERMITTED;
}

struct Named {
    Session* session;
    engine::Address address;
    std::uint64_t bytes;
};

// What an address and a size mean; or why they mean nothing.
int named(const void* pointer, std::uint64_t bytes, Named& what) {
    const auto address = reinterpret_cast<engine::Address>(pointer);
    if (!pointer || address + bytes < address) return LMS_INVALID;
    Session* const session = session::session_at(address);
    const auto buffer = session ? session->buffer_at(address) : std::nullopt;
    if (!buffer) return LMS_NOT_MANAGED;
    if (!session->awake()) return LMS_NOT_NOW;
    if (bytes == 0) {
        what = {session, buffer->address, buffer->bytes};
        return LMS_OK;
    }
    if (address + bytes > buffer->address + buffer->bytes) return LMS_INVALID;
    what = {session, address, bytes};
    return LMS_OK;
}

// What moves memory of one buffer.
int move(const void* pointer, std::uint64_t bytes,
         Session::Asked (Session::*how)(engine::Address, std::uint64_t)) {
    return answered([&] {
        Named what{};
        if (const int wrong = named(pointer, bytes, what); wrong != LMS_OK) return wrong;
        if (in_host_function()) return LMS_NOT_NOW;
        return status_of((what.session->*how)(what.address, what.bytes));
    });
}

int pin(const void* pointer, std::size_t bytes) {
    return move(pointer, bytes, &Session::pin);
}

int unpin(const void* pointer, std::size_t bytes) {
    return answered([&] {
        Named what{};
        if (const int wrong = named(pointer, bytes, what); wrong != LMS_OK) return wrong;
        return what.session->unpin(what.address, what.bytes) ? LMS_OK : LMS_INVALID;
    });
}

int prefetch(const void* pointer, std::size_t bytes) {
    return move(pointer, bytes, &Session::prefetch);
}

int evict(const void* pointer, std::size_t bytes) {
    return move(pointer, bytes, &Session::evict);
}

// A struct as the caller knows it begins with its size, and gets as much as fits. `filled`: as it is here.
template <typename Struct>
int give(Struct* to, Struct filled) {
    constexpr std::uint32_t kHead = 2 * sizeof(std::uint32_t);
    if (!to || to->size < kHead) return LMS_INVALID;
    filled.size = to->size;
    std::memcpy(to, &filled, std::min<std::size_t>(to->size, sizeof filled));
    return LMS_OK;
}

int counters(lms_counters* counters) {
    lms_counters now{};
#define LMS_COUNTER(name, meaning) now.name = trace::counters().name.load(std::memory_order_relaxed);
#include <lms/counters.def>
    return give(counters, now);
}

int levels(int device, lms_levels* levels) {
    if (device < 0) return LMS_INVALID;
    const trace::LiveGpu& gpu = trace::live_gpu(device);
    if (gpu.used == 0) return LMS_NOT_MANAGED;
    return give(levels, {.size = 0,
                         .reserved = 0,
                         .budget_bytes = gpu.budget_bytes,
                         .allocated_bytes = gpu.allocated_bytes,
                         .peak_allocated_bytes = gpu.peak_allocated_bytes,
                         .most_beyond_bytes = gpu.most_beyond_bytes,
                         .resident_bytes = gpu.resident_bytes,
                         .host_bytes = gpu.host_bytes,
                         .in_bytes_per_s = gpu.in_bytes_per_s,
                         .out_bytes_per_s = gpu.out_bytes_per_s,
                         .turn_wait_ns = gpu.turn_wait_ns,
                         .granted_bytes = gpu.granted_bytes,
                         .least_granted_bytes = gpu.least_granted_bytes});
}

int snapshot(lms_buffer* buffers, std::size_t buffer_size, std::size_t* count) {
    return answered([&] {
        if (!count || (!buffers && *count > 0) || buffer_size == 0) return LMS_INVALID;
        const std::size_t room = *count;
        std::size_t all = 0;
        for (Session* session : session::sessions()) {
            for (const session::WhereBuffer& each : session->snapshot()) {
                const lms_buffer one{each.address,      each.bytes,        each.resident_bytes,
                                     each.pinned_bytes, session->device(), 0};
                if (all < room) {
                    std::memcpy(reinterpret_cast<char*>(buffers) + all * buffer_size, &one,
                                std::min(buffer_size, sizeof one));
                }
                ++all;
            }
        }
        *count = all;
        return LMS_OK;
    });
}

int limit(std::uint64_t bytes) {
    return answered([&] {
        if (in_host_function()) return LMS_NOT_NOW;
        session::set_limit(bytes);
        return LMS_OK;
    });
}

int pause() {
    return answered([] {
        if (in_host_function()) return LMS_NOT_NOW;
        int status = LMS_OK;
        for (Session* session : session::sessions()) {
            if (const int one = session->awake() ? status_of(session->pause()) : LMS_OK; one != LMS_OK)
                status = one;
        }
        return status;
    });
}

int resume() {
    return answered([] {
        if (in_host_function()) return LMS_NOT_NOW;
        for (Session* session : session::sessions()) {
            if (session->awake()) session->resume_paused();
        }
        return LMS_OK;
    });
}

// The regions that a thread is in. No destructor: exit handlers come here when those have run.
struct Regions {
    static constexpr std::size_t kMost = 64;
    struct One {
        char name[64];
        std::uint64_t begin_ns;
    };
    std::size_t depth;
    // So many, from the first that a trace is told of until none is open: what is thread_local lies on the
    // stack of every thread of the program's, which may be small.
    One* open;
};
constinit thread_local Regions regions{};

int region_begin(const char* name) {
    if (!name) return LMS_INVALID;
    const std::size_t level = regions.depth++;
    if (level >= Regions::kMost) return LMS_OK;
    const bool told = trace::expected();
    if (told && !regions.open) regions.open = new (std::nothrow) Regions::One[Regions::kMost]();
    if (!regions.open) return LMS_OK;
    Regions::One& one = regions.open[level];
    one = {};
    if (!told) return LMS_OK;
    std::strncpy(one.name, name, sizeof one.name - 1);
    one.begin_ns = trace::now_ns();
    return LMS_OK;
}

int region_end() {
    if (regions.depth == 0) return LMS_INVALID;
    const std::size_t level = --regions.depth;
    trace::Writer* const writer = trace::begun();
    if (level >= Regions::kMost || !regions.open) return LMS_OK;
    const Regions::One one = regions.open[level];
    if (level == 0) delete[] std::exchange(regions.open, nullptr);
    if (!writer || one.begin_ns == 0) return LMS_OK;  // none, or begun before it
    writer->write(
        trace::Region{one.name, static_cast<std::uint32_t>(gettid()), one.begin_ns, trace::now_ns()});
    return LMS_OK;
}

constexpr lms_api kApi = {.size = sizeof(lms_api),
                          .version = LMS_API_VERSION,
                          .counters = counters,
                          .levels = levels,
                          .snapshot = snapshot,
                          .pin = pin,
                          .unpin = unpin,
                          .prefetch = prefetch,
                          .evict = evict,
                          .limit = limit,
                          .pause = pause,
                          .resume = resume,
                          .region_begin = region_begin,
                          .region_end = region_end};

}  // namespace
}  // namespace lms::entry

extern "C" __attribute__((visibility("default"))) const lms_api* lms_api_get(uint32_t version) {
    return version == LMS_API_VERSION ? &lms::entry::kApi : nullptr;
}
