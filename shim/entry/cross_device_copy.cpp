#include "shim/entry/cross_device_copy.h"

#include <algorithm>
#include <optional>

#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/entry/wait.h"
#include "shim/program/contexts.h"
#include "shim/session/submit.h"

namespace lms::entry {

namespace {

CUcontext context_at(engine::Address address) {
    if (const session::Session* session = session::allocator_of(address)) return session->context();
    unsigned type = 0;
    CUcontext context = nullptr;
    int device = 0;
    const device::Driver& driver = device::driver();
    const auto is = [&](void* answer, CUpointer_attribute what) {
        return driver.cuPointerGetAttribute(answer, what, address) == CUDA_SUCCESS;
    };
    if (!is(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE) || type != CU_MEMORYTYPE_DEVICE) return nullptr;
    is(&context, CU_POINTER_ATTRIBUTE_CONTEXT);
    // What is of a pool is of no context.
    if (!context && is(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL))
        context = program::another_context(device, nullptr);
    return context;
}

// The session of allocated memory if its GPU is not the current one. Of what the program has mapped itself it
// says who may reach it, and the driver sees to that.
const session::Session* elsewhere(engine::Address address) {
    const session::Session* session = session::allocator_of(address);
    CUdevice current = CU_DEVICE_INVALID;
    if (!session || device::driver().cuCtxGetDevice(&current) != CUDA_SUCCESS) return nullptr;
    return session->device() == current ? nullptr : session;
}

// The contexts of a copy's two ends; null for host memory.
struct Ends {
    CUcontext to;
    CUcontext from;
};

// Nothing where no end is managed memory of another GPU than the current one.
std::optional<Ends> ends_apart(engine::Address to, engine::Address from) {
    if (session::managed_bounds().end == 0) return std::nullopt;
    if (!elsewhere(to) && !elsewhere(from)) return std::nullopt;
    return Ends{context_at(to), context_at(from)};
}

// The context in which work in `stream` is to be submitted whose managed memory, `ranges`, is all of one GPU,
// which is not the current one: the stream's if it is of that GPU, or any of that GPU's if the host waits for
// the work. Null: the current one.
CUcontext context_elsewhere(std::span<const session::Range> ranges, CUstream stream, bool waits) {
    if (session::managed_bounds().end == 0) return nullptr;
    const session::Session* only = nullptr;
    for (const session::Range& range : ranges) {
        if (!session::allocator_of(range.address)) continue;
        const session::Session* const session = elsewhere(range.address);
        if (!session || (only && only != session)) return nullptr;
        only = session;
    }
    if (!only || waits) return only ? only->context() : nullptr;
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return nullptr;
    CUcontext own = nullptr;
    if (device::driver().cuStreamGetCtx(stream, &own) != CUDA_SUCCESS) return nullptr;
    const device::InContext in_context(own);
    CUdevice device = CU_DEVICE_INVALID;
    const bool is_there =
        device::driver().cuCtxGetDevice(&device) == CUDA_SUCCESS && device == only->device();
    return is_there ? own : nullptr;
}

}  // namespace

int detail::ask_for_devices() {
    int count = 0;
    // Before cuInit nobody says.
    if (device::driver().cuDeviceGetCount(&count) != CUDA_SUCCESS) return 0;
    devices = count;
    return count;
}

void note_use_elsewhere(std::span<const session::Range> ranges, CUstream stream) {
    const auto is_elsewhere = [context = session::context_of(stream)](const session::Range& range) {
        const session::Session* session = session::session_at(range.address);
        return session && !program::may_reach(context, session->device());
    };
    if (std::ranges::any_of(ranges, is_elsewhere)) program::leads_elsewhere(session::context_of(stream));
}

void note_graph_use(CUstream stream) {
    if (several_devices()) program::leads_elsewhere(session::context_of(stream));
}

CUresult where_it_is(std::span<const session::Range> ranges, CUstream stream, bool waits,
                     session::Call call) {
    const CUcontext there = several_devices() ? context_elsewhere(ranges, stream, waits) : nullptr;
    if (!there) return call();
    // That GPU's default streams are others than the current one's.
    CUresult status = waits ? wait_for_earlier(stream) : CUDA_SUCCESS;
    if (status != CUDA_SUCCESS) return status;
    const device::InContext in_context(there);
    status = call();
    return waits && status == CUDA_SUCCESS ? device::driver().cuStreamSynchronize(stream) : status;
}

CUresult copy_across(engine::Address to, engine::Address from, std::size_t bytes, CUstream stream, bool waits,
                     session::Call call) {
    const auto ends = several_devices() ? ends_apart(to, from) : std::nullopt;
    if (!ends) return call();
    const device::Driver& driver = device::driver();
    if (ends->to && ends->from) {
        if (!waits) return driver.cuMemcpyPeerAsync(to, ends->to, from, ends->from, bytes, stream);
        const auto peer = stream == CU_STREAM_PER_THREAD ? driver.cuMemcpyPeer_ptds : driver.cuMemcpyPeer;
        return peer(to, ends->to, from, ends->from, bytes);
    }
    const session::Range ranges[] = {{to, bytes}, {from, bytes}};
    return where_it_is(ranges, stream, waits, call);
}

}  // namespace lms::entry
