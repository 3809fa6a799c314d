// Allocation and free.
#include <algorithm>
#include <vector>

#include "shim/access/elsewhere.h"
#include "shim/access/exempt.h"
#include "shim/access/pointer_tables.h"
#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/entry/forms.h"
#include "shim/entry/guard.h"
#include "shim/entry/wait.h"
#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/program/green_contexts.h"
#include "shim/program/streams.h"
#include "shim/session/pools.h"
#include "shim/session/sessions.h"
#include "shim/session/submit.h"
#include "shim/session/tool_requests.h"
#include "shim/util/bounds.h"

namespace lms::entry {
namespace {

using device::current_context;
using device::driver;
using session::Session;

// Allocates through the session if the policy wants the allocation, else through `real`.
CUresult allocate(
    CUdeviceptr* pointer, std::size_t bytes, util::FunctionRef<CUresult(Session&, engine::Address&)> managed,
    session::Call real,
    util::FunctionRef<Session*()> session_for = [] { return session::current_session(); }) {
    return guarded_taking([&]() -> CUresult {
        session::program_allocates();
        session::take_up_requests();
        if (pointer && bytes > 0 && session::manages(bytes) && !access::called_by_exempt()) {
            if (Session* session = session_for()) {
                engine::Address address = 0;
                const CUresult status = managed(*session, address);
                if (status == CUDA_SUCCESS) *pointer = address;
                return status;
            }
        }
        const CUresult status = session::call_with_oom_retry(real);
        if (status == CUDA_SUCCESS && pointer) access::note_unmanaged(*pointer, bytes);
        if (status == CUDA_ERROR_OUT_OF_MEMORY && bytes > 0 && bytes < settings().threshold_bytes)
            telemetry::announce_too_small(bytes, settings().threshold_bytes);
        return status;
    });
}

// What the driver says of allocating and freeing while work is captured, which it forbids some threads, and
// with which a capture that forbade it ends. Asked for more memory than there is, it gives none.
CUresult allowed_while_capturing() {
    if (!program::capturing_anywhere()) return CUDA_SUCCESS;
    constexpr std::size_t kTooMuch = std::size_t{1} << 62;
    CUdeviceptr none = 0;
    const CUresult status = driver().cuMemAlloc_v2(&none, kTooMuch);
    return status == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : status;
}

// For the synchronous forms, whose callers may keep freed memory for themselves. While a graph is captured
// frameworks give nothing back.
CUresult allocate_now(Session& session, std::size_t bytes, engine::Address& address) {
    if (const CUresult error = allowed_while_capturing(); error != CUDA_SUCCESS) return error;
    const device::Together together;
    return session.allocate(bytes, address, program::owner_of(current_context()),
                            !program::capturing_anywhere());
}

// Waits for the work of a context of the session's GPU.
CUresult wait_for_context(Session& session, CUcontext context) {
    const program::ContextUse use(context, bounds::kOtherThread);
    // Another thread has been ending it for so long: the driver waits there for its work.
    if (!use) return context == current_context() ? driver().cuCtxSynchronize() : CUDA_SUCCESS;
    const device::InContext in_context(context);
    if (in_context.status() != CUDA_SUCCESS) return in_context.status();
    if (const auto status = session.wait_beside_moves(context)) return *status;
    if (const auto status = program::wait_beside_no_capture()) return *status;
    // To wait for the context would end what is captured on its GPU, whatever the capture's mode and thread.
    if (const auto status = session.wait_beside_captures(context)) return *status;
    return driver().cuCtxSynchronize();
}

// Waits for the work that may use memory of the session's GPU: of all contexts there, and of no others, which
// the current one may be.
CUresult wait_for_users(Session& session, CUcontext owner) {
    move_ahead_while_busy(session);
    CUdevice device = 0;
    CUcontext current = nullptr;
    CUresult status = driver().cuCtxGetDevice(&device);
    if (device::refuses_all(status)) return status;
    if (status == CUDA_SUCCESS && device == session.device()) current = current_context();
    std::vector<CUcontext> contexts = program::known_contexts_of(session.device());
    if (current && std::ranges::find(contexts, current) == contexts.end()) contexts.push_back(current);
    for (const CUcontext context : contexts) {
        status = wait_for_context(session, context);
        // What has become of others is nothing to the memory.
        if (status != CUDA_SUCCESS && (context == current || context == owner)) return status;
    }
    return CUDA_SUCCESS;
}

// What is noted of a buffer that is about to be freed goes first: its addresses may be given out again at
// once.
void forget(Session& session, engine::Address address) {
    const auto buffer = session.buffer_at(address);
    if (!buffer || buffer->address != address) return;
    access::note_freed(buffer->address, buffer->bytes);
    session::note_given_back(buffer->address);
}

// Calls `call()` with the stream's context current: another than the caller's, or any where that has none.
// What it answers is nothing where the driver knows of no such context.
template <typename Call>
auto in_context_of(CUstream stream, Call&& call) {
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return call();
    CUcontext context = program::context_of_known(stream);
    if (!context && driver().cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) return decltype(call()){};
    if (context == current_context()) return call();
    const device::InContext in_context(context);
    return in_context.status() == CUDA_SUCCESS ? call() : decltype(call()){};
}

// Memory of `pool` in the order of a stream.
CUresult allocate_on(CUdeviceptr* pointer, std::size_t bytes, CUmemoryPool pool, bool managed, CUstream where,
                     session::Call real) {
    return allocate(
        pointer, managed ? bytes : 0,  // of no bytes nothing is managed
        [&](Session& session, engine::Address& address) {
            const device::Together together;
            const CUresult status = session.allocate_on(where, bytes, address);
            if (status == CUDA_SUCCESS) session::note_taken(pool, address, bytes);
            return status;
        },
        real, [&] { return in_context_of(where, session::current_session); });
}

// A graph's memory is the graph's, and what a capture forbids is the driver's to refuse.
bool taken_by_capture(CUstream stream) {
    return program::capturing(stream) || program::capture_forbids(stream);
}

// `named`: none is that of the stream's GPU.
CUresult allocate_async(CUdeviceptr* pointer, std::size_t bytes, std::optional<CUmemoryPool> named,
                        CUstream where, session::Call pass) {
    return guarded([&]() -> CUresult {
        const device::SameContext same;
        if (taken_by_capture(where)) return pass();
        CUmemoryPool pool = named.value_or(nullptr);
        const bool managed = in_context_of(where, [&] {
            CUdevice device = 0;
            return driver().cuCtxGetDevice(&device) == CUDA_SUCCESS &&
                   (named || driver().cuDeviceGetMemPool(&pool, device) == CUDA_SUCCESS) &&
                   session::pool_is_managed(pool, device);
        });
        return allocate_on(pointer, bytes, pool, managed, where, pass);
    });
}

CUresult free_unmanaged(CUdeviceptr pointer, session::Call free) {
    // What the program maps itself is not freed so.
    const auto known = session::session_at(pointer) ? std::nullopt : access::forget_memory(pointer);
    const CUresult status = free();
    if (status != CUDA_SUCCESS && known) access::region_stays(*known);
    if (status == CUDA_SUCCESS) access::elsewhere_freed();
    return status;
}

// Others' memory may be there from now on.
CUresult free_host(session::Call free) {
    const CUresult status = free();
    if (status == CUDA_SUCCESS) access::elsewhere_freed();
    return status;
}

CUresult free_async(CUdeviceptr pointer, CUstream where, session::Call pass) {
    return guarded([&]() -> CUresult {
        Session* session = session::allocator_of(pointer);
        if (!session) return free_unmanaged(pointer, pass);
        // A graph can free what it allocated itself only.
        if (program::capturing(where)) return CUDA_ERROR_INVALID_VALUE;
        const device::Together together;
        return session->free_on(where, pointer, [&] { forget(*session, pointer); });
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
    return entry::allocate(
        dptr, bytesize,
        [&](session::Session& session, engine::Address& address) {
            return entry::allocate_now(session, bytesize, address);
        },
        [&] { return driver().cuMemAlloc_v2(dptr, bytesize); });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
    // The driver's own pitch on every GPU so far, and a multiple of what any texture asks for.
    constexpr std::size_t kPitch = 512;
    const std::size_t pitch = (WidthInBytes + kPitch - 1) / kPitch * kPitch;
    const bool fits = Height == 0 || pitch <= SIZE_MAX / Height;
    const bool valid =
        pPitch && fits && (ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);
    return entry::allocate(
        dptr, valid ? pitch * Height : 0,
        [&](session::Session& session, engine::Address& address) {
            const CUresult status = entry::allocate_now(session, pitch * Height, address);
            if (status == CUDA_SUCCESS) *pPitch = pitch;
            return status;
        },
        [&] { return driver().cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes); });
}

CUresult cuMemFreeHost(void* pointer) {
    return entry::free_host([&] { return driver().cuMemFreeHost(pointer); });
}

CUresult cuMemHostUnregister(void* pointer) {
    return entry::free_host([&] { return driver().cuMemHostUnregister(pointer); });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    return entry::guarded([&]() -> CUresult {
        session::Session* session = session::allocator_of(dptr);
        if (!session) return entry::free_unmanaged(dptr, [&] { return driver().cuMemFree_v2(dptr); });
        const auto buffer = session->buffer_at(dptr);
        const CUcontext owner = buffer && buffer->owner ? buffer->owner : session->context();
        // The memory knows its context: none need be current.
        const device::ContextForNone context(owner);
        CUresult status = entry::allowed_while_capturing();
        if (status != CUDA_SUCCESS) return status;
        // What is refused waits for nothing.
        if (!session->can_free(dptr)) return CUDA_ERROR_INVALID_VALUE;
        // cuMemFree waits for the work that may use the memory, and fails where waiting is forbidden; so do
        // we. Of a pool's memory the program has done that itself (cuda.h), and other work may wait for it.
        if (!session::pool_of(dptr)) status = entry::wait_for_users(*session, owner);
        if (status != CUDA_SUCCESS) return status;
        const device::Together together;
        entry::forget(*session, dptr);
        return session->free(dptr);
    });
}

LMS_FORMS(cuMemAllocAsync, _ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
          return entry::allocate_async(dptr, bytesize, std::nullopt, Form::stream(hStream),
                                       [&] { return Form::real(dptr, bytesize, hStream); });)

LMS_FORMS(cuMemAllocFromPoolAsync, _ptsz,
          (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
          return entry::allocate_async(dptr, bytesize, pool, Form::stream(hStream),
                                       [&] { return Form::real(dptr, bytesize, pool, hStream); });)

LMS_FORMS(cuMemFreeAsync, _ptsz, (CUdeviceptr dptr, CUstream hStream),
          return entry::free_async(dptr, Form::stream(hStream), [&] { return Form::real(dptr, hStream); });)
