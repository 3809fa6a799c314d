// Allocation and free.
#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/engine/capture.h"
#include "shim/engine/sessions.h"
#include "shim/engine/submit.h"
#include "shim/engine/tables.h"
#include "shim/entry/guard.h"

namespace lms::entry {
namespace {

using device::driver;
using engine::Session;

CUcontext current_context() {
    CUcontext context = nullptr;
    return driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS ? context : nullptr;
}

// Allocates through the session if the policy wants the allocation, else through `real`.
template <typename Managed, typename Real>
CUresult allocate(CUdeviceptr* pointer, std::size_t bytes, Managed&& managed, Real&& real) {
    return guarded([&]() -> CUresult {
        if (pointer && bytes > 0 && engine::manages(bytes)) {
            if (Session* session = engine::current_session()) {
                core::Address address = 0;
                const CUresult status = managed(*session, address);
                if (status == CUDA_SUCCESS) *pointer = address;
                return status;
            }
        }
        const CUresult status = engine::call_with_room(real);
        if (status == CUDA_SUCCESS && pointer) engine::note_unmanaged(*pointer, bytes);
        return status;
    });
}

// For the synchronous forms, whose callers may keep freed memory for themselves. While a graph is captured
// frameworks give nothing back.
CUresult allocate_now(Session& session, std::size_t bytes, core::Address& address) {
    if (!engine::capturing_anywhere() && session.asks_to_collect(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    return session.allocate(bytes, address, current_context());
}

// The pointer tables of what is about to be freed go first: its addresses may be given out again at once.
void forget_tables(Session& session, core::Address address) {
    const auto buffer = session.buffer_at(address);
    if (buffer && buffer->address == address) engine::note_freed(buffer->address, buffer->bytes);
}

CUresult allocate_async(decltype(device::Driver::cuMemAllocAsync) real, CUdeviceptr* pointer,
                        std::size_t bytes, CUstream stream, bool per_thread) {
    const CUstream where = engine::spelt_out(stream, per_thread);
    const auto pass = [&] { return real(pointer, bytes, stream); };
    // A graph's memory is the graph's.
    if (engine::capturing(where)) return pass();
    return allocate(
        pointer, bytes,
        [&](Session& session, core::Address& address) { return session.allocate_on(where, bytes, address); },
        pass);
}

// Whether `pool` is the pool that cuMemAllocAsync takes from; other pools are the app's to manage.
bool is_default(CUmemoryPool pool) {
    CUdevice device = 0;
    CUmemoryPool standard = nullptr;
    return driver().cuCtxGetDevice(&device) == CUDA_SUCCESS &&
           driver().cuDeviceGetDefaultMemPool(&standard, device) == CUDA_SUCCESS && pool == standard;
}

CUresult allocate_from_pool(decltype(device::Driver::cuMemAllocFromPoolAsync) real, CUdeviceptr* pointer,
                            std::size_t bytes, CUmemoryPool pool, CUstream stream, bool per_thread) {
    const CUstream where = engine::spelt_out(stream, per_thread);
    const auto pass = [&] { return real(pointer, bytes, pool, stream); };
    if (engine::capturing(where)) return pass();
    // Of no bytes nothing is managed.
    return allocate(
        pointer, is_default(pool) ? bytes : 0,
        [&](Session& session, core::Address& address) { return session.allocate_on(where, bytes, address); },
        pass);
}

CUresult free_async(decltype(device::Driver::cuMemFreeAsync) real, CUdeviceptr pointer, CUstream stream,
                    bool per_thread) {
    return guarded([&]() -> CUresult {
        Session* session = engine::session_at(pointer);
        if (!session) {
            engine::note_freed(pointer, 0);
            return real(pointer, stream);
        }
        const CUstream where = engine::spelt_out(stream, per_thread);
        // A graph can free what it allocated itself only.
        if (engine::capturing(where)) return CUDA_ERROR_INVALID_VALUE;
        forget_tables(*session, pointer);
        return session->free_on(where, pointer);
    });
}

}  // namespace
}  // namespace lms::entry

using namespace lms;
using device::driver;

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
    return entry::allocate(
        dptr, bytesize,
        [&](engine::Session& session, core::Address& address) {
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
        [&](engine::Session& session, core::Address& address) {
            const CUresult status = entry::allocate_now(session, pitch * Height, address);
            if (status == CUDA_SUCCESS) *pPitch = pitch;
            return status;
        },
        [&] { return driver().cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes); });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    return entry::guarded([&]() -> CUresult {
        engine::Session* session = engine::session_at(dptr);
        if (!session) {
            engine::note_freed(dptr, 0);
            return driver().cuMemFree_v2(dptr);
        }
        // cuMemFree waits for the work that may use the memory, and fails where waiting is forbidden; so do
        // we.
        CUresult status = driver().cuCtxSynchronize();
        if (status != CUDA_SUCCESS) return status;
        const auto buffer = session->buffer_at(dptr);
        if (buffer && buffer->owner && buffer->owner != entry::current_context()) {
            const device::InContext in_context(buffer->owner);
            status = driver().cuCtxSynchronize();
            if (status != CUDA_SUCCESS) return status;
        }
        entry::forget_tables(*session, dptr);
        return session->free(dptr);
    });
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
    return entry::allocate_async(driver().cuMemAllocAsync, dptr, bytesize, hStream, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
    return entry::allocate_async(driver().cuMemAllocAsync_ptsz, dptr, bytesize, hStream, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream) {
    return entry::allocate_from_pool(driver().cuMemAllocFromPoolAsync, dptr, bytesize, pool, hStream, false);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream) {
    return entry::allocate_from_pool(driver().cuMemAllocFromPoolAsync_ptsz, dptr, bytesize, pool, hStream,
                                     true);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
    return entry::free_async(driver().cuMemFreeAsync, dptr, hStream, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream) {
    return entry::free_async(driver().cuMemFreeAsync_ptsz, dptr, hStream, true);
}
