#include "tools/lms/frameworks.h"

#include <fmt/format.h>

namespace lms::tool {
namespace {

constexpr std::string_view kTorch[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};
constexpr std::string_view kJaxAllocator[] = {"XLA_PYTHON_CLIENT_ALLOCATOR"};

constexpr FrameworkOption kOptions[] = {
    {"torch-async",
     "PyTorch allocates each tensor by itself, with cudaMallocAsync, instead of from blocks that it caches",
     "backend:cudaMallocAsync", kTorch, true},
    {"jax-async",
     "JAX allocates each array by itself, from a pool of the driver's, instead of dividing most of the GPU",
     "cuda_async", kJaxAllocator},
};

// The entry of a list "key:value,key:value" with the key of `setting`; empty if it has none.
std::string_view entry_of(std::string_view list, std::string_view setting) {
    const std::string_view key = setting.substr(0, setting.find(':') + 1);
    while (!list.empty()) {
        const std::size_t comma = list.find(',');
        const std::string_view entry = list.substr(0, comma);
        if (entry.starts_with(key)) return entry;
        list = comma == list.npos ? std::string_view{} : list.substr(comma + 1);
    }
    return {};
}

}  // namespace

std::span<const FrameworkOption> framework_options() {
    return kOptions;
}

std::string with_option(const FrameworkOption& option, std::string_view variable, std::string_view before,
                        std::string& problem) {
    if (before.empty()) return std::string(option.setting);
    const std::string_view said = option.is_list ? entry_of(before, option.setting) : before;
    if (said == option.setting) return std::string(before);
    if (said.empty()) return fmt::format("{},{}", before, option.setting);
    problem = fmt::format("--{}: {}={} contradicts it; expected it without {}", option.option, variable,
                          before, said);
    return {};
}

}  // namespace lms::tool
