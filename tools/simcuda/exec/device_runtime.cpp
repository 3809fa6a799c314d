// CUDA's device runtime, as far as kernels here call it: __cudaCDP2*, for kernels that give work to streams,
// and cudaCG*, for grids whose blocks wait for one another. What is checked is what NVIDIA's own checks, by
// the PTX in libcudadevrt.a.
#include "tools/simcuda/exec/device_functions.h"
#include "tools/simcuda/exec/dynamic_parallelism.h"
#include "tools/simcuda/exec/uninterrupted.h"

namespace simcuda::exec {
namespace {

constexpr u64 kDeviceToDevice = 3, kDefaultKind = 4;  // cudaMemcpyKind
constexpr u64 kGridScope = 1;                         // cudaCGScopeGrid

// Of cudaMemcpy3DParms, cudaPitchedPtr and cudaExtent.
struct Position3D {
    u64 x, y, z;
};
struct Pitched {
    u64 address, pitch, width, height;
};
struct Extent {
    u64 width, height, depth;
};
struct Copy3D {
    u64 from_array;
    Position3D from_position;
    Pitched from;
    u64 to_array;
    Position3D to_position;
    Pitched to;
    Extent extent;
    u32 kind;
};

u64 thread_index(const sc_thread& thread) {
    const u32* size = thread.block->ntid;
    return (u64{thread.tid[2]} * size[1] + thread.tid[1]) * size[0] + thread.tid[0];
}

u64 block_index(const sc_block& block) {
    return (u64{block.ctaid[2]} * block.nctaid[1] + block.ctaid[1]) * block.nctaid[0] + block.ctaid[0];
}

u64 blocks_of(const sc_block& block) {
    return u64{block.nctaid[0]} * block.nctaid[1] * block.nctaid[2];
}

u64 threads_of(const sc_block& block) {
    return u64{block.ntid[0]} * block.ntid[1] * block.ntid[2];
}

// Not what a block or thread has for itself, which is gone when a copy is made.
bool is_global(const sc_thread& thread, u64 address) {
    const u64 host = other_side(address);
    bool shared = false;
    for (u32 rank = 0; rank < thread.block->cluster_size; ++rank)
        shared |= host - thread.block->peers[rank] + 0x80000000 < 0x100000000;
    const bool local = host - thread.stack_limit < 0x4000000;
    return address != 0 && !shared && !local;
}

bool is_kind(u64 kind) {
    return kind == kDeviceToDevice || kind == kDefaultKind;
}

bool is_nothing(const Transfer& transfer) {
    return transfer.width == 0 || transfer.rows == 0 || transfer.slices == 0;
}

// Rows that would run into one another.
bool overlaps(const Transfer& transfer, const Transfer::Side& side) {
    return (transfer.rows > 1 || transfer.slices > 1) && side.pitch < transfer.width;
}

Status submit_copy(sc_thread& thread, Caller caller, const Transfer& transfer, u64 kind, u64 stream) {
    if (is_nothing(transfer)) return Status::Success;
    if (!is_kind(kind)) return Status::InvalidMemcpyDirection;
    if (transfer.to.address == 0 || transfer.from.address == 0) return Status::InvalidValue;
    if (overlaps(transfer, transfer.to) || overlaps(transfer, transfer.from))
        return Status::InvalidPitchValue;
    if (!is_global(thread, transfer.to.address) || !is_global(thread, transfer.from.address))
        return Status::InvalidValue;
    return Block::of(&thread).children().transfer(caller, transfer, stream);
}

Status submit_fill(sc_thread& thread, Caller caller, const Transfer& transfer, u64 stream) {
    if (is_nothing(transfer)) return Status::Success;
    if (overlaps(transfer, transfer.to) || !is_global(thread, transfer.to.address))
        return Status::InvalidValue;
    return Block::of(&thread).children().transfer(caller, transfer, stream);
}

Status copy_3d(sc_thread& thread, Caller caller, u64 parameters, u64 stream) {
    if (parameters == 0) return Status::InvalidValue;
    const Copy3D& copy = *static_cast<const Copy3D*>(to_host(parameters));
    if (copy.from_array || copy.to_array) return Status::InvalidValue;
    const auto side = [](const Pitched& pitched, const Position3D& at) -> Transfer::Side {
        const u64 slice = pitched.pitch * pitched.height;
        return {pitched.address ? pitched.address + at.z * slice + at.y * pitched.pitch + at.x : 0,
                pitched.pitch, slice};
    };
    const Transfer transfer{.to = side(copy.to, copy.to_position),
                            .from = side(copy.from, copy.from_position),
                            .width = copy.extent.width,
                            .rows = copy.extent.height,
                            .slices = copy.extent.depth,
                            .value = {}};
    return submit_copy(thread, caller, transfer, copy.kind, stream);
}

// As nvcc's cooperative groups do it, in the same words: the top bit turns when all blocks have come.
void synchronize_grid(sc_thread& thread) {
    kRuntime.barrier(&thread, 0, 0, SC_BARRIER_SYNC, 0);
    if (thread_index(thread) == 0) {
        const sc_block& block = *thread.block;
        u32* const arrived = static_cast<u32*>(to_host(block.workspace)) + 1;
        const u32 mine = block_index(block) == 0 ? 0x80000000u - (static_cast<u32>(blocks_of(block)) - 1) : 1;
        const u32 before = __atomic_fetch_add(arrived, mine, __ATOMIC_SEQ_CST);
        while (((before ^ __atomic_load_n(arrived, __ATOMIC_SEQ_CST)) & 0x80000000u) == 0)
            kRuntime.yield(&thread);
    }
    kRuntime.barrier(&thread, 0, 0, SC_BARRIER_SYNC, 0);
}

void store_word(u64 address, u64 value) {
    if (address) *static_cast<u32*>(to_host(address)) = static_cast<u32>(value);
}

// What may be given to streams, and what goes with them.
Status work(sc_thread& thread, Caller caller, sc_call call, const u64* a) {
    Children& children = Block::of(&thread).children();
    const auto byte = [](u64 value) { return static_cast<std::uint8_t>(value); };
    const auto flags = [](u64 value) { return static_cast<u32>(value); };
    switch (call) {
        case SC_CALL_LAUNCH:
            return children.launch(caller, a[0], a[1]);
        case SC_CALL_CREATE_STREAM:
            return a[0] ? children.create_stream(*static_cast<u64*>(to_host(a[0])), flags(a[1]))
                        : Status::InvalidValue;
        case SC_CALL_DESTROY_STREAM:
            return children.destroy_stream(a[0]);
        case SC_CALL_WAIT_EVENT:
            return a[2] == 0 ? children.wait(caller, a[0], a[1]) : Status::InvalidValue;
        case SC_CALL_CREATE_EVENT:
            return a[0] ? children.create_event(*static_cast<u64*>(to_host(a[0])), flags(a[1]))
                        : Status::InvalidValue;
        case SC_CALL_RECORD_EVENT:
            return children.record(caller, a[0], a[1]);
        case SC_CALL_DESTROY_EVENT:
            return children.destroy_event(a[0]);
        case SC_CALL_COPY:
            return submit_copy(thread, caller, {.to = {a[0]}, .from = {a[1]}, .width = a[2], .value = {}},
                               a[3], a[4]);
        case SC_CALL_COPY_2D:
            return submit_copy(
                thread, caller,
                {.to = {a[0], a[1]}, .from = {a[2], a[3]}, .width = a[4], .rows = a[5], .value = {}}, a[6],
                a[7]);
        case SC_CALL_COPY_3D:
            return copy_3d(thread, caller, a[0], a[1]);
        case SC_CALL_FILL:
            return submit_fill(thread, caller, {.to = {a[0]}, .from = {}, .width = a[2], .value = byte(a[1])},
                               a[3]);
        case SC_CALL_FILL_2D:
            return submit_fill(
                thread, caller,
                {.to = {a[0], a[1]}, .from = {}, .width = a[3], .rows = a[4], .value = byte(a[2])}, a[5]);
        case SC_CALL_FILL_3D: {
            // The structures are passed by value: a host address each.
            const Pitched& to = *reinterpret_cast<const Pitched*>(a[0]);
            const Extent& extent = *reinterpret_cast<const Extent*>(a[2]);
            if (extent.depth > 1 && extent.height > to.height && extent.width != 0)
                return Status::InvalidValue;
            return submit_fill(thread, caller,
                               {.to = {to.address, to.pitch, to.pitch * to.height},
                                .from = {},
                                .width = extent.width,
                                .rows = extent.height,
                                .slices = extent.depth,
                                .value = byte(a[1])},
                               a[3]);
        }
        case SC_CALL_ALLOCATE: {
            const u64 memory = device_allocate(&thread, a[1]);
            *static_cast<u64*>(to_host(a[0])) = memory;
            return memory ? Status::Success : Status::MemoryAllocation;
        }
        case SC_CALL_RELEASE:
            device_release(&thread, a[0]);
            return Status::Success;
        default:
            return Status::Unknown;
    }
}

}  // namespace

u64 device_call(sc_thread* thread, sc_call call, const u64* a) {
    const sc_block& block = *thread->block;
    const Caller caller{block_index(block), thread_index(*thread)};
    const auto code = [](Status status) { return static_cast<u64>(status); };
    if (call == SC_CALL_SYNC_GRID) {
        if (a[0] == 0) return code(Status::Unknown);
        synchronize_grid(*thread);  // which others have turns in
        return code(Status::Success);
    }
    const Uninterrupted uninterrupted(thread);
    Children& children = Block::of(thread).children();
    switch (call) {
        case SC_CALL_PREPARE_LAUNCH:
            return children.prepare(caller, a[0], reinterpret_cast<const u32*>(a[1]),
                                    reinterpret_cast<const u32*>(a[2]), static_cast<u32>(a[3]));
        case SC_CALL_LAST_ERROR:
            return code(children.last_error(caller, true));
        case SC_CALL_PEEK_ERROR:
            return code(children.last_error(caller, false));
        case SC_CALL_GRID_HANDLE:
            return a[0] == kGridScope ? block.workspace : 0;
        case SC_CALL_GRID_SIZE:
            if (a[2] == 0) return code(Status::Unknown);
            store_word(a[0], blocks_of(block) * threads_of(block));
            store_word(a[1], 1);
            return code(Status::Success);
        case SC_CALL_GRID_RANK:
            if (a[2] == 0) return code(Status::Unknown);
            store_word(a[0], caller.block * threads_of(block) + caller.thread);
            store_word(a[1], 0);
            return code(Status::Success);
        default:
            return code(children.noted(caller, work(*thread, caller, call, a)));
    }
}

}  // namespace simcuda::exec
