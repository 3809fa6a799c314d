// cuLogs*: a log in which nothing is ever written, so that those who listen to it hear nothing.
#include <fstream>
#include <list>
#include <mutex>

#include "tools/simcuda/driver/api.h"

struct CUlogsCallbackEntry_st {};

namespace simcuda::driver {
namespace {

struct Listeners {
    std::mutex mutex;
    std::list<CUlogsCallbackEntry_st> all;
};

Listeners& listeners() {
    static auto* const kept = new Listeners;  // outlives exit handlers, which may still call
    return *kept;
}

}  // namespace

SIMCUDA_API cuLogsRegisterCallback(CUlogsCallback callback, void*, CUlogsCallbackHandle* out) {
    return call(Entry::cuLogsRegisterCallback, kBeforeInit, [&] {
        require(callback != nullptr, CUDA_ERROR_INVALID_VALUE);
        std::lock_guard lock(listeners().mutex);
        CUlogsCallbackEntry_st& added = listeners().all.emplace_back();
        if (out != nullptr) *out = &added;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
    return call(Entry::cuLogsUnregisterCallback, kBeforeInit, [&] {
        std::lock_guard lock(listeners().mutex);
        const auto gone = std::erase_if(listeners().all, [&](const auto& one) { return &one == handle; });
        require(gone != 0, CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLogsCurrent(CUlogIterator* iterator, unsigned flags) {
    return call(Entry::cuLogsCurrent, kBeforeInit, [&] {
        require(iterator != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        *iterator = 0;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLogsDumpToFile(CUlogIterator*, const char* path, unsigned flags) {
    return call(Entry::cuLogsDumpToFile, kBeforeInit, [&] {
        require(path != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        require(std::ofstream(path).good(), CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLogsDumpToMemory(CUlogIterator*, char* buffer, std::size_t* size, unsigned flags) {
    return call(Entry::cuLogsDumpToMemory, kBeforeInit, [&] {
        require(buffer != nullptr && size != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
        if (*size != 0) *buffer = '\0';
        *size = 0;
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
