// What tests read of the overlay driver.
#pragma once

#include <cstdint>

#include "tests/entry/where.h"

namespace overlay {

struct Record {
    void (*handle_free)() = nullptr;           // called once, when a texture's, stream's or pool's is free
    void (*context_goes)() = nullptr;          // called once, before the driver destroys a context, or might
    void (*context_gone)() = nullptr;          // called once, when the driver has destroyed a context
    void (*span_reserved)() = nullptr;         // called once, when more addresses are reserved than a GPU has
    void (*context_synchronized)() = nullptr;  // called once, when the driver has waited for one
    void (*events_asked)() = nullptr;          // called once, by who asks about an event after so many others
    int events_until = 0;
    int dead_queries = 0;  // of events and streams that were gone with their context
    int context_waits = 0;
    int exports = 0;             // calls that share memory with others
    int green_uses = 0;          // of green contexts while they were another thread's
    unsigned block = 0;          // threads of a block of legacy launches
    bool strange_nodes = false;  // nodes are said to be of a type that cuda.h does not know
    bool tells_apart = false;    // a kernel has no parameters as a function, nor a function as a kernel
    bool keeps_streams = false;  // cuStreamDestroy answers CUDA_ERROR_UNKNOWN
};

// The first argument of a call that needs room, see overlay_want_room().
constexpr std::uint32_t kAsked = 0xa5ced;

// Of the simulated GPU.
inline std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    SIM(cuMemGetInfo_v2)(&free, &total);
    return free;
}

// What a call that needs room is answered.
CUresult answer_as_asked();

// What cuGetExportTable gives for any table: ways past everybody who stands before the driver.
struct ExportTable {
    std::size_t bytes;
    decltype(&::cuMemAlloc_v2) allocate;
    decltype(&::cuMemFree_v2) free;
    decltype(&::cuLaunchKernel) launch;
};

// That of the driver behind the shim; for tests.
inline Record& record() {
    static auto* const found = static_cast<Record*>(
        dlsym(dlopen(std::getenv("LMS_DRIVER"), RTLD_NOW | RTLD_LOCAL), "overlay_record"));
    return *found;
}

}  // namespace overlay

// Exported by the overlay.
extern "C" {
extern overlay::Record overlay_record;
// From now on the simulated driver is gone, as the real one is late in a process's exit.
void overlay_deinitialize();
extern bool overlay_deinitialized;
// From now on the function of that name, and no other, answers CUDA_ERROR_OUT_OF_MEMORY to calls with kAsked
// until `wanted` bytes are free, and then CUDA_SUCCESS.
void overlay_want_room(const char* name, std::size_t wanted);
}
