// The contexts of both GPUs, and what every program finds in them.
#include "tests/random/kernels.h"
#include "tests/random/machine.h"

namespace rnd {

void Machine::set_up() {
    for (unsigned i = kDevices; i-- > 0;) {
        ok(CU(cuDeviceGet)(&devices_[i].device, static_cast<int>(i)), "cuDeviceGet");
        set_up(devices_[i]);
    }
    ok(CU(cuMemAddressReserve)(&nowhere_, 2 << 20, 0, 0, 0), "cuMemAddressReserve");
    void* pinned = nullptr;
    ok(CU(cuMemHostAlloc)(&pinned, (kThreads * kFlags + 1) * sizeof(std::uint32_t), CU_MEMHOSTALLOC_PORTABLE),
       "cuMemHostAlloc");
    {
        const std::lock_guard lock(flags_mutex_);
        flags_ = static_cast<std::uint32_t*>(pinned);
    }
    for (Hand& hand : hands_) {
        ok(CU(cuMemHostAlloc)(&pinned, kScratch, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc");
        hand.scratch = static_cast<std::uint8_t*>(pinned);
        for (unsigned device = kDevices; device-- > 0;) {
            enter(device);
            hand.events[device].resize(16);
            for (CUevent& one : hand.events[device]) {
                ok(CU(cuEventCreate)(&one, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
            }
        }
        ok(CU(cuEventCreate)(&hand.last_own, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
}

void Machine::set_up(Device& device) {
    ok(CU(cuDevicePrimaryCtxRetain)(&device.context, device.device), "cuDevicePrimaryCtxRetain");
    device.life = ++born_;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        on_thread(thread, [&] { enter(static_cast<unsigned>(&device - devices_.data())); });
    }
    CUmodule module = nullptr;
    ok(CU(cuModuleLoadData)(&module, kernel_text().c_str()), "cuModuleLoadData");
    for (const char* name : {"mix", "section", "tagged", "packed", "table", "hidden", "add", "fill"}) {
        ok(CU(cuModuleGetFunction)(&device.functions[name], module, name), name);
    }
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device.device;
    ok(CU(cuMemPoolCreate)(&device.pool, &props), "cuMemPoolCreate");
}

// Makes the device's context the thread's.
bool Machine::enter(unsigned device) {
    static thread_local CUcontext current = nullptr;
    static thread_local std::uint64_t life = 0;  // a new context may look like an old one
    if (current == devices_[device].context && life == devices_[device].life) return true;
    current = devices_[device].context;
    life = devices_[device].life;
    return ok(CU(cuCtxSetCurrent)(current), "cuCtxSetCurrent");
}

// Each device reaches the other's memory from here on.
void Machine::befriend() {
    for (unsigned device = kDevices; device-- > 0;) {
        const Device& other = devices_[kDevices - 1 - device];
        enter(device);
        const CUresult status = CU(cuCtxEnablePeerAccess)(other.context, 0);
        if (status != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) ok(status, "cuCtxEnablePeerAccess");
        CUmemoryPool ordinary = nullptr;
        ok(CU(cuDeviceGetDefaultMemPool)(&ordinary, other.device), "cuDeviceGetDefaultMemPool");
        const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, devices_[device].device},
                                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        for (const CUmemoryPool pool : {ordinary, other.pool})
            ok(CU(cuMemPoolSetAccess)(pool, &access, 1), "cuMemPoolSetAccess");
    }
}

bool Machine::synchronize_all() {
    bool done = true;
    for (unsigned device = pair_ ? kDevices : 1; device-- > 0;) {
        done = enter(device) && ok(CU(cuCtxSynchronize)(), "cuCtxSynchronize") && done;
    }
    return done;
}

bool Machine::has(Verb verb) const {
    return std::any_of(program_->begin(), program_->end(), [&](const Op& op) { return op.verb == verb; });
}

// The contexts take everything with them that is not mapped by the program.
void Machine::tear_down() {
    {
        const std::lock_guard lock(flags_mutex_);
        flags_ = nullptr;
    }
    // But for events, of which the simulated driver remembers each, to tell those of contexts that are gone.
    for (Hand& hand : hands_) {
        for (auto& events : hand.events) {
            for (const CUevent one : events) CU(cuEventDestroy_v2)(one);
            events.clear();
        }
        if (hand.last_own) CU(cuEventDestroy_v2)(hand.last_own);
    }
    if (nowhere_) CU(cuMemAddressFree)(nowhere_, 2 << 20);
    for (const Device& device : devices_) {
        ok(CU(cuDevicePrimaryCtxRelease_v2)(device.device), "cuDevicePrimaryCtxRelease");
    }
    // Pools are the device's.
    for (const Device& device : devices_) CU(cuMemPoolDestroy)(device.pool);
    // One that has failed would answer still.
    CU(cuCtxSetCurrent)(nullptr);
    drop_own();
}

}  // namespace rnd
