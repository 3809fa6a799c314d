// cuInit, the version, and how programs find the entry points.
#include <cstring>
#include <string_view>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/identity.h"
#include "tools/simcuda/driver/report.h"

namespace simcuda::driver {
namespace {

bool matches(StreamForm form, cuuint64_t flags) {
    const bool per_thread = form == StreamForm::PTDS || form == StreamForm::PTSZ;
    if (form == StreamForm::NONE) return true;
    return per_thread == ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

// The newest ABI of `name` that is not newer than `version`. A base without a per-thread form answers both
// flags.
CUresult find(const char* name, void** address, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
    const auto found = [&](CUdriverProcAddressQueryResult result) {
        if (status != nullptr) *status = result;
    };
    require(address != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
    *address = nullptr;
    found(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    require((flags & ~cuuint64_t{CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                                 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) == 0,
            CUDA_ERROR_INVALID_VALUE);
    const EntryInfo* best = nullptr;
    bool newer = false;
    for (const EntryInfo& entry : entries()) {
        if (std::strcmp(entry.base, name) != 0) continue;
        if (entry.introduced > static_cast<unsigned>(version)) {
            newer = true;
        } else if (matches(entry.form, flags) && (best == nullptr || entry.introduced >= best->introduced)) {
            best = &entry;
        }
    }
    if (best == nullptr) {
        if (newer) found(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
        // Who asks for the status is told there, by NVIDIA's drivers too.
        return status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    }
    *address = best->address;
    found(CU_GET_PROC_ADDRESS_SUCCESS);
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_API cuInit(unsigned flags) {
    return call(Entry::cuInit, kBeforeInit, [&] {
        require(flags == 0, CUDA_ERROR_INVALID_VALUE);
        initialise();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuDriverGetVersion(int* version) {
    return call(Entry::cuDriverGetVersion, kBeforeInit, [&] {
        require(version != nullptr, CUDA_ERROR_INVALID_VALUE);
        *version = kCudaVersion;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGetProcAddress(const char* name, void** address, int version, cuuint64_t flags) {
    return call(Entry::cuGetProcAddress, kBeforeInit,
                [&] { return find(name, address, version, flags, nullptr); });
}

SIMCUDA_API cuGetProcAddress_v2(const char* name, void** address, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult* status) {
    return call(Entry::cuGetProcAddress_v2, kBeforeInit,
                [&] { return find(name, address, version, flags, status); });
}

// NVIDIA's private tables are theirs: there are none here.
SIMCUDA_API cuGetExportTable(const void** table, const CUuuid* id) {
    return call(Entry::cuGetExportTable, kBeforeInit, [&] {
        require(table != nullptr && id != nullptr, CUDA_ERROR_INVALID_VALUE);
        *table = nullptr;
        return CUDA_ERROR_NOT_FOUND;
    });
}

SIMCUDA_API cuProfilerStart() {
    return call(Entry::cuProfilerStart, [](Context&) { return CUDA_SUCCESS; });
}

SIMCUDA_API cuProfilerStop() {
    return call(Entry::cuProfilerStop, [](Context&) {
        write_report();
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
