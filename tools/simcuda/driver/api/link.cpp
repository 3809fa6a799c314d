// cuLink*: modules made of several inputs, host objects and archives of them among these. What comes out is
// one PTX text; it stands where a cubin would.
#include <algorithm>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/fatbin.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/host_object.h"
#include "tools/simcuda/driver/jit.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/module.h"
#include "tools/simcuda/driver/ptx_link.h"
#include "tools/simcuda/ptx/device_runtime.h"

namespace simcuda::driver {
namespace {

// What NVIDIA's device runtime is called in libcudadevrt.a. For the devices there are here it is machine code
// alone; translated code calls the simulator's own.
constexpr std::string_view kDeviceRuntime = "cuda_device_runtime.o";

// What a CUlinkState points to.
struct Linker {
    JitLog log;
    std::vector<std::string> texts;
    std::vector<std::string> members;  // of archives: what defines nothing that is missing stays out
    bool device_runtime = false;
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

void add_archive(Linker& linker, std::string_view archive, unsigned arch) {
    for (const ArchiveMember& member : members_of(archive)) {
        const CUresult result = find_ptx_in_object(member.bytes, arch, linker.members);
        linker.device_runtime |= member.name == kDeviceRuntime;
        // Of machine code it will be found that what it defines is missing.
        require(result == CUDA_SUCCESS || result == CUDA_ERROR_NO_BINARY_FOR_GPU, result);
    }
}

CUresult add(Context& context, CUlinkState state, CUjitInputType type, const std::string& image) {
    const auto linker = checked_linker(state);
    require(linker->linked.empty(), CUDA_ERROR_INVALID_VALUE);
    const unsigned arch = architecture(context.device());
    std::vector<std::string> found;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;  // NVVM's code would have to be compiled
    switch (type) {
        case CU_JIT_INPUT_PTX:
        case CU_JIT_INPUT_FATBINARY:
        case CU_JIT_INPUT_CUBIN:
            result = find_ptx(image.c_str(), arch, found);
            break;
        case CU_JIT_INPUT_OBJECT:
            result = find_ptx_in_object(image, arch, found);
            break;
        case CU_JIT_INPUT_LIBRARY:
            add_archive(*linker, image, arch);
            return CUDA_SUCCESS;
        case CU_JIT_INPUT_NVVM:
            break;
        default:
            result = CUDA_ERROR_INVALID_VALUE;
    }
    require(result == CUDA_SUCCESS, result);
    linker->texts.insert(linker->texts.end(), found.begin(), found.end());
    return CUDA_SUCCESS;
}

// Takes from the archives whatever defines what is missing, until nothing more is.
void take_members(Linker& linker) {
    for (;;) {
        const std::set<std::string> missing = undefined_in(linker.texts);
        const auto member =
            std::find_if(linker.members.begin(), linker.members.end(), [&missing](const std::string& text) {
                const std::set<std::string> defined = definitions_of(text);
                return std::any_of(defined.begin(), defined.end(),
                                   [&](const std::string& name) { return missing.contains(name); });
            });
        if (member == linker.members.end()) return;
        linker.texts.push_back(std::move(*member));
        linker.members.erase(member);
    }
}

// As NVIDIA's driver was seen to answer (numba's issue 7159): CUDA_ERROR_UNKNOWN, and the reason in the log.
void require_all_defined(Linker& linker) {
    for (const std::string& name : undefined_in(linker.texts)) {
        if (ptx::is_builtin_function(name)) continue;
        if (linker.device_runtime && ptx::is_device_runtime_function(name)) continue;
        const std::string error = "undefined reference to " + name;
        message("linking: %s", error.c_str());
        linker.log.write(error);
        throw Failure{CUDA_ERROR_UNKNOWN};
    }
}

}  // namespace

SIMCUDA_API cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
    return call(Entry::cuLinkCreate_v2, [&](Context&) {
        require(state != nullptr, CUDA_ERROR_INVALID_VALUE);
        auto linker = std::shared_ptr<Linker>(new Linker{{count, options, values}, {}, {}, false, {}});
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
        take_members(*linker);
        require_all_defined(*linker);
        translate_ptx(linker->texts, &linker->log);  // refuses what cannot be loaded
        linker->linked = link_ptx(linker->texts);
        *image = linker->linked.data();
        if (bytes) *bytes = linker->linked.size() + 1;
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuLinkDestroy(CUlinkState state) {
    return call(Entry::cuLinkDestroy, kNotAfterFailure, [&] {
        require(linkers().remove(state) != nullptr, CUDA_ERROR_INVALID_HANDLE);
        return CUDA_SUCCESS;
    });
}

}  // namespace simcuda::driver
