#include "shim/entry/across.h"

namespace lms::entry {

namespace {

bool several_devices() {
    static const bool several = [] {
        int count = 0;
        return device::driver().cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 1;
    }();
    return several;
}

CUcontext context_at(core::Address address) {
    if (const engine::Session* session = engine::session_at(address)) return session->context();
    unsigned type = 0;
    CUcontext context = nullptr;
    const device::Driver& driver = device::driver();
    const bool on_device =
        driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
        type == CU_MEMORYTYPE_DEVICE;
    if (on_device) driver.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address);
    return context;
}

}  // namespace

std::optional<Ends> ends_apart(core::Address to, core::Address from) {
    if (engine::managed_bounds().end == 0 || !several_devices()) return std::nullopt;
    CUdevice current = CU_DEVICE_INVALID;
    if (device::driver().cuCtxGetDevice(&current) != CUDA_SUCCESS) return std::nullopt;
    const auto elsewhere = [&](core::Address address) {
        const engine::Session* session = engine::session_at(address);
        return session && session->device() != current;
    };
    if (!elsewhere(to) && !elsewhere(from)) return std::nullopt;
    return Ends{context_at(to), context_at(from)};
}

}  // namespace lms::entry
