// cuInit, the version, and how programs find the entry points.
#include <atomic>
#include <string_view>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/identity.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/report.h"

namespace simcuda::driver {
namespace {

bool matches(StreamForm form, cuuint64_t flags) {
    const bool per_thread = form == StreamForm::PTDS || form == StreamForm::PTSZ;
    if (form == StreamForm::NONE) return true;
    return per_thread == ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

// Functions of libraries that are not here: NVIDIA's drivers have them in no Linux driver, or with those
// alone.
bool is_elsewhere(std::string_view name) {
    return name == "cuEventCreateFromEGLSync" || name == "cuWGLGetDevice";
}

// What a lookup gives; no entry, and why.
struct Found {
    const EntryInfo* entry;
    CUdriverProcAddressQueryResult status;
};

// The newest ABI of `name` that is not newer than `version`; what came after this driver it does not know. A
// base without a per-thread form answers both flags, and one with does not answer with the other.
Found find(std::string_view name, int version, cuuint64_t flags) {
    Found found{nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
    for (const EntryInfo& entry : entries()) {
        if (entry.base != name || entry.introduced > knobs().cuda || is_elsewhere(name)) continue;
        if (!found.entry) found.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (entry.introduced > static_cast<unsigned>(version) || !matches(entry.form, flags)) continue;
        if (!found.entry || entry.introduced >= found.entry->introduced)
            found = {&entry, CU_GET_PROC_ADDRESS_SUCCESS};
    }
    return found;
}

Found checked_find(const char* name, void** address, int version, cuuint64_t flags) {
    require(address != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
    require((flags & ~cuuint64_t{CU_GET_PROC_ADDRESS_LEGACY_STREAM |
                                 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) == 0,
            CUDA_ERROR_INVALID_VALUE);
    return find(name, version, flags);
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
        *version = static_cast<int>(knobs().cuda);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuGetProcAddress(const char* name, void** address, int version, cuuint64_t flags) {
    return call(Entry::cuGetProcAddress, kBeforeInit, [&] {
        const Found found = checked_find(name, address, version, flags);
        require(found.entry != nullptr, CUDA_ERROR_NOT_FOUND);
        *address = found.entry->address;
        return CUDA_SUCCESS;
    });
}

// Succeeds without a function too, whether or not it is asked for the status, as NVIDIA's drivers do.
SIMCUDA_API cuGetProcAddress_v2(const char* name, void** address, int version, cuuint64_t flags,
                                CUdriverProcAddressQueryResult* status) {
    return call(Entry::cuGetProcAddress_v2, kBeforeInit, [&] {
        const Found found = checked_find(name, address, version, flags);
        *address = found.entry ? found.entry->address : nullptr;
        if (status != nullptr) *status = found.status;
        return CUDA_SUCCESS;
    });
}

// NVIDIA's private tables are theirs: there are none here.
SIMCUDA_API cuGetExportTable(const void** table, const CUuuid* id) {
    return call(Entry::cuGetExportTable, kBeforeInit, [&] {
        require(table != nullptr && id != nullptr, CUDA_ERROR_INVALID_VALUE);
        *table = nullptr;
        static std::atomic<bool> said;
        if (!said.exchange(true))
            message(
                "NVIDIA's runtime, or a library of NVIDIA's, asks its driver for what is not simulated; "
                "programs run here if they are built with nvcc -cudart shared");
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
