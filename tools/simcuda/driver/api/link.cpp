// cuLink*: modules made of several inputs. What comes out is one PTX text; it stands where a cubin would.
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/fatbin.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/jit.h"
#include "tools/simcuda/driver/module.h"
#include "tools/simcuda/driver/ptx_link.h"

namespace simcuda::driver {
namespace {

// What a CUlinkState points to.
struct Linker {
    JitLog log;
    std::vector<std::string> texts;
    std::string linked;  // what cuLinkComplete gave out

    CUlinkState handle() { return reinterpret_cast<CUlinkState>(this); }
};

Handles<Linker>& linkers() {
    static auto& handles = *new Handles<Linker>;
    return handles;
}

std::shared_ptr<Linker> checked_linker(CUlinkState handle) {
    auto linker = linkers().find(handle);
    require(linker != nullptr, CUDA_ERROR_INVALID_HANDLE);
    return linker;
}

CUresult add(Context& context, CUlinkState state, CUjitInputType type, const std::string& image) {
    const auto linker = checked_linker(state);
    // Host objects and their archives would have to be searched for device code.
    require(type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY || type == CU_JIT_INPUT_CUBIN,
            CUDA_ERROR_NOT_SUPPORTED);
    require(linker->linked.empty(), CUDA_ERROR_INVALID_VALUE);
    std::vector<std::string> found;
    const CUresult result = find_ptx(image.c_str(), architecture(context.device()), found);
    require(result == CUDA_SUCCESS, result);
    linker->texts.insert(linker->texts.end(), found.begin(), found.end());
    return CUDA_SUCCESS;
}

}  // namespace

SIMCUDA_API cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
    return call(Entry::cuLinkCreate_v2, [&](Context&) {
        require(state != nullptr, CUDA_ERROR_INVALID_VALUE);
        auto linker = std::shared_ptr<Linker>(new Linker{{count, options, values}, {}, {}});
        *state = linkers().add(std::move(linker))->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, std::size_t bytes,
                             const char*, unsigned, CUjit_option*, void**) {
    return call(Entry::cuLinkAddData_v2, [&](Context& context) {
        require(data != nullptr, CUDA_ERROR_INVALID_VALUE);
        return add(context, state, type, std::string(static_cast<const char*>(data), bytes));
    });
}

SIMCUDA_API cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned,
                             CUjit_option*, void**) {
    return call(Entry::cuLinkAddFile_v2,
                [&](Context& context) { return add(context, state, type, read_image(path)); });
}

SIMCUDA_API cuLinkComplete(CUlinkState state, void** image, std::size_t* bytes) {
    return call(Entry::cuLinkComplete, [&](Context&) {
        require(image != nullptr, CUDA_ERROR_INVALID_VALUE);
        const auto linker = checked_linker(state);
        require(!linker->texts.empty(), CUDA_ERROR_INVALID_VALUE);
        translate_ptx(linker->texts, &linker->log);  // refuses what cannot be loaded
        linker->linked = link_ptx(linker->texts);
        *image = linker->linked.data();
        if (bytes) *bytes = linker->linked.size() + 1;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLinkDestroy(CUlinkState state) {
    return call(Entry::cuLinkDestroy, [&](Context&) {
        require(linkers().remove(state) != nullptr, CUDA_ERROR_INVALID_HANDLE);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
