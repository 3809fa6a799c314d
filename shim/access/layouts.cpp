#include "shim/access/layouts.h"

#include <algorithm>
#include <unordered_map>

#include "shim/access/code_registry.h"
#include "shim/device/driver_table.h"
#include "shim/util/mutex.h"
#include "shim/util/settings.h"

namespace lms::access {

namespace {

// Never destroyed: other libraries' exit handlers launch kernels too.
struct Cache {
    util::SharedMutex mutex{util::LockOrder::Table};
    std::unordered_map<CUfunction, std::shared_ptr<const Layout>> layouts LMS_GUARDED_BY(mutex);
};

Cache& cache() {
    static Cache& instance = *new Cache;
    return instance;
}

// Both queries (CUDA 12.4 and later) answer CUDA_ERROR_INVALID_VALUE past the last parameter.
template <typename Query>
bool ask(Query query, std::vector<code::Parameter>& parameters) {
    for (std::size_t index = 0;; ++index) {
        std::size_t offset = 0;
        std::size_t bytes = 0;
        const CUresult status = query(index, &offset, &bytes);
        if (status == CUDA_SUCCESS) {
            parameters.push_back({offset, bytes});
        } else {
            return status == CUDA_ERROR_INVALID_VALUE;
        }
    }
}

std::vector<const void*> owners_of(CUfunction function) {
    std::vector<const void*> owners;
    CUmodule module = nullptr;
    if (device::driver().cuFuncGetModule(&module, function) == CUDA_SUCCESS) owners.push_back(module);
    if (const auto known = loaded_code().kernel(function)) {
        if (known->owner != module) owners.push_back(known->owner);
    } else if (const CUlibrary library = library_of(reinterpret_cast<CUkernel>(function))) {
        owners.push_back(library);
    }
    return owners;
}

// To each query a handle of the other kind may be one that has no parameters: cuda.h names no other error. So
// that of its own kind is believed, and the other where it tells of some.
bool ask_driver(CUfunction function, std::vector<code::Parameter>& parameters) {
    const device::Driver& driver = device::driver();
    const auto as_function = [&](std::size_t index, std::size_t* offset, std::size_t* bytes) {
        return driver.cuFuncGetParamInfo(function, index, offset, bytes);
    };
    const auto as_kernel = [&](std::size_t index, std::size_t* offset, std::size_t* bytes) {
        return driver.cuKernelGetParamInfo(reinterpret_cast<CUkernel>(function), index, offset, bytes);
    };
    const auto first_of = [&](const auto& own, const auto& other) {
        if (ask(own, parameters)) return true;
        parameters.clear();
        return ask(other, parameters) && !parameters.empty();
    };
    CUmodule module = nullptr;
    const bool is_kernel = library_of(reinterpret_cast<CUkernel>(function)) != nullptr ||
                           driver.cuFuncGetModule(&module, function) != CUDA_SUCCESS;
    return is_kernel ? first_of(as_kernel, as_function) : first_of(as_function, as_kernel);
}

Layout look(CUfunction function) {
    Layout layout;
    layout.name = name_of(function);
    layout.owners = owners_of(function);
    code::KernelCode told{.addresses = code::Addresses::Complete};
    if (settings().safety == Safety::Opaque) told = loaded_code().code_of(layout.owners, layout.name);
    layout.addresses = told.addresses;
    if (settings().asks_what_is_written()) layout.written = told.written;
    if (driver_tells_layouts()) {
        layout.known = ask_driver(function, layout.parameters);
    } else if (auto parameters = loaded_code().layout_of(layout.owners, layout.name)) {
        layout.known = true;
        layout.parameters = std::move(*parameters);
    }
    if (settings().safety == Safety::Opaque && layout.addresses == code::Addresses::Complete) {
        layout.accesses = place(told.accesses, layout.parameters);
        layout.bounds = LaunchBounds::of(told.bounds, layout.parameters);
    }
    std::size_t words = 0;
    for (const code::Parameter& each : layout.parameters) words += (each.bytes + 7) / 8;
    if (layout.known && words <= KnownLaunches::Launch::kMostWords)
        layout.launches = std::make_unique<KnownLaunches>();
    return layout;
}

}  // namespace

std::size_t Layout::bytes() const {
    std::size_t end = 0;
    for (const code::Parameter& each : parameters) end = std::max(end, each.offset + each.bytes);
    return end;
}

std::shared_ptr<const Layout> layout_of(CUfunction function) {
    {
        const util::SharedLock lock(cache().mutex);
        const auto it = cache().layouts.find(function);
        if (it != cache().layouts.end()) return it->second;
    }
    auto layout = std::make_shared<const Layout>(look(function));
    const util::Lock lock(cache().mutex);
    return cache().layouts.try_emplace(function, std::move(layout)).first->second;
}

void forget_layouts() {
    const util::Lock lock(cache().mutex);
    cache().layouts.clear();
}

}  // namespace lms::access
