// What translated kernels and the executor agree on. Kernels are C text compiled apart, so this text is
// compiled twice: here as C++, and as kAbiText at the head of every translated unit. It holds no comments
// inside for that reason; the fields are explained above it.
//
// sc_thread: one CUDA thread. `lane` and `warp` follow from its linear index; `stack_limit` is the lowest
//   address its stack may reach; `site` tells where it waits for others of its warp: the greater, the further
//   inside of what they parted at; `calls` is the part of it that comes of calls; `budget` counts the passes
//   a loop that may wait for others makes before it yields.
// sc_block: one block. `parameters` is the parameter block, `variables` the device addresses of
//   Program::variables(), `shared` the host address that shared address 0 stands for (addresses wrap at 32
//   bits: 2 GiB to each side are the block's own), `workspace` the device address of the zeroed words
//   cooperative groups synchronises a grid with, 0 in one that was not launched for that. `peers`: what
//   `shared` is to each block of its cluster, by rank. `executor` is the exec::Block behind it.
// SC_WARP_TOGETHER: the value is the address of what a lane brings, which begins with a pointer to a
// function.
//   The function is called once, with the addresses of all 32, null for lanes that are not there.
// sc_steps: the threads of a block that run in steps, from one wait to the next. `at` is where each goes on
//   (0: at its begin) or, once it has got there, the same with what it waits for (sc_at, and the sc_warp_op).
//   `value` is what a lane brings to an operation of its warp, then what it gets; `site` is as in sc_thread.
// SC_KEPT: threads of a block, and some more, so that arrays of so many do not fall on the same cache sets.
// sc_access: how an instruction addresses a texture or surface (exec::Access), and what it does out of
//   bounds. Coordinates are x, y, z and the layer, in 32 bits each. `level` is the one asked for, or with
//   SC_GRADIENTS two vectors of three that say how far apart fetches are.
// sc_call: functions of the device runtime (exec/device_runtime.cpp). `call` takes what they are given, in 64
// bits
//   each, structures by their host address, and gives what they return.
// sc_runtime: what a kernel may call. `surface` gives the host address of so many bytes, 0 where there are
//   none. Only fibers may call what waits: yield, exit, barriers, warp operations and wait_for_grids.
#pragma once

#define SIMCUDA_C_TEXT(name, ...) \
    __VA_ARGS__                   \
    inline constexpr char name[] = #__VA_ARGS__;

namespace simcuda::exec {

// An access may end up this far beyond the 4 GiB that a space of 32 bits spans.
inline constexpr long kWindowSlack = 64 << 20;

// clang-format off
SIMCUDA_C_TEXT(kAbiText,
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef unsigned __int128 u128;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long s64;
typedef __int128 s128;

struct sc_runtime;

struct sc_block {
    const struct sc_runtime* runtime;
    const u8* parameters;
    const u64* variables;
    u64 shared;
    u64 workspace;
    u64 grid_id;
    void* executor;
    u32 ctaid[3];
    u32 nctaid[3];
    u32 ntid[3];
    u32 static_shared_bytes;
    u32 dynamic_shared_bytes;
    u32 smid;
    u32 nsmid;
    const u64* peers;
    u32 cluster_ctaid[3];
    u32 cluster_nctaid[3];
    u32 cluster_rank;
    u32 cluster_size;
    u32 explicit_cluster;
};

struct sc_thread {
    struct sc_block* block;
    u64 stack_limit;
    u32 tid[3];
    u32 lane;
    u32 warp;
    u32 budget;
    u64 site;
    u64 calls;
};

enum sc_barrier_op { SC_BARRIER_SYNC, SC_BARRIER_POPC, SC_BARRIER_AND, SC_BARRIER_OR };
enum sc_warp_op {
    SC_WARP_SYNC, SC_WARP_EXCHANGE, SC_WARP_BALLOT, SC_WARP_MATCH,
    SC_WARP_ADD, SC_WARP_MIN_U32, SC_WARP_MAX_U32, SC_WARP_MIN_S32, SC_WARP_MAX_S32,
    SC_WARP_AND, SC_WARP_OR, SC_WARP_XOR, SC_WARP_TOGETHER
};

struct sc_steps {
    u32 at[1024];
    u32 tid[3][1024];
    u32 mask[1024];
    u32 source[1024];
    u64 value[1024];
    u64 site[1024];
};
enum sc_at {
    SC_AT_SITE = 0xffff, SC_AT_BARRIER = 0x10000, SC_AT_WARP = 0x20000, SC_AT_JOIN = 0x30000,
    SC_ENDED = 0x40000, SC_AT_GRIDS = 0x50000, SC_AT_WHAT = 0xf0000, SC_AT_SHIFT = 20, SC_APART = -1
};
enum { SC_KEPT = 1040 };

enum sc_access {
    SC_DIMENSIONS = 3, SC_LAYERED = 4, SC_CUBE = 8, SC_INTEGER = 16, SC_CLAMP = 32, SC_ZERO = 64,
    SC_GRADIENTS = 128
};
enum sc_query { SC_WIDTH, SC_HEIGHT, SC_DEPTH, SC_NORMALIZED };

enum sc_call {
    SC_CALL_PREPARE_LAUNCH, SC_CALL_LAUNCH, SC_CALL_LAST_ERROR, SC_CALL_PEEK_ERROR,
    SC_CALL_CREATE_STREAM, SC_CALL_DESTROY_STREAM, SC_CALL_WAIT_EVENT,
    SC_CALL_CREATE_EVENT, SC_CALL_RECORD_EVENT, SC_CALL_DESTROY_EVENT,
    SC_CALL_COPY, SC_CALL_COPY_2D, SC_CALL_COPY_3D, SC_CALL_FILL, SC_CALL_FILL_2D, SC_CALL_FILL_3D,
    SC_CALL_ALLOCATE, SC_CALL_RELEASE,
    SC_CALL_GRID_HANDLE, SC_CALL_SYNC_GRID, SC_CALL_GRID_SIZE, SC_CALL_GRID_RANK
};

struct sc_runtime {
    u32 (*barrier)(struct sc_thread*, u32 id, u32 threads, enum sc_barrier_op, u32 value);
    void (*arrive)(struct sc_thread*, u32 id, u32 threads);
    u64 (*warp)(struct sc_thread*, enum sc_warp_op, u32 mask, u64 value, u32 source);
    u32 (*converge)(struct sc_thread*);
    void (*yield)(struct sc_thread*);
    void (*arrive_in_cluster)(struct sc_thread*);
    void (*wait_for_cluster)(struct sc_thread*);
    void (*let_dependents_go)(struct sc_thread*);
    void (*wait_for_grids)(struct sc_thread*);
    void (*exit)(struct sc_thread*);
    void (*trap)(struct sc_thread*);
    void (*stack_overflow)(struct sc_thread*);
    void (*assert_fail)(struct sc_thread*, u64 message, u64 file, u32 line, u64 function);
    u32 (*print)(struct sc_thread*, u64 format, u64 arguments);
    u64 (*allocate)(struct sc_thread*, u64 bytes);
    void (*release)(struct sc_thread*, u64 address);
    u64 (*clock_ns)(void);
    u64 (*call)(struct sc_thread*, enum sc_call, const u64* arguments);
    void (*fetch)(struct sc_thread*, u32 access, u64 texture, const u32* at, const float* level, u32* texel);
    void (*gather)(struct sc_thread*, u32 channel, u64 texture, const u32* at, u32* texels);
    u64 (*surface)(struct sc_thread*, u32 access, u64 surface, const u32* at, u32 bytes);
    u32 (*query)(struct sc_thread*, enum sc_query, u64 handle);
};
)
// clang-format on

}  // namespace simcuda::exec
