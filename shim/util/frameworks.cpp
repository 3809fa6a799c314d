#include "shim/util/frameworks.h"

#include <algorithm>
#include <iterator>

namespace lms::util {
namespace {

// docs/reference/frameworks.md says why `auto` means a framework or not.
constexpr FrameworkVariable kJax[] = {
    {"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", true},
    // Else it allocates, and frees, three quarters of all memory that it is told of before anything else.
    {"XLA_PYTHON_CLIENT_PREALLOCATE", "false"},
    // A share of the GPU that JAX is to take, which cuda_async would go beyond.
    {"XLA_CLIENT_MEM_FRACTION", nullptr, true},
    {"XLA_PYTHON_CLIENT_MEM_FRACTION", nullptr, true},
};
// The same list under its two names, of which PyTorch reads the first that it knows.
constexpr FrameworkVariable kPyTorch[] = {
    {"PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync", true},
    {"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", true},
};
constexpr FrameworkVariable kTensorFlow[] = {
    {"TF_GPU_ALLOCATOR", "cuda_malloc_async", true},
};

constexpr Framework kFrameworks[] = {
    {"jax", true, kJax},
    {"pytorch", false, kPyTorch},
    {"tensorflow", false, kTensorFlow},
};

}  // namespace

std::optional<std::vector<const Framework*>> frameworks_of(std::string_view text) {
    std::vector<const Framework*> meant;
    if (text == "off") return meant;
    if (text == "auto") {
        for (const Framework& each : kFrameworks)
            if (each.automatic) meant.push_back(&each);
        return meant;
    }
    for (std::size_t comma = 0; comma != text.npos;) {
        comma = text.find(',');
        const Framework* const found =
            std::ranges::find(kFrameworks, text.substr(0, comma), &Framework::name);
        if (found == std::end(kFrameworks)) return std::nullopt;
        meant.push_back(found);
        text.remove_prefix(comma == text.npos ? text.size() : comma + 1);
    }
    return meant;
}

const FrameworkVariable* deciding_variable(const Framework& framework, const Environment& now) {
    const auto decides = [&](const FrameworkVariable& variable) {
        return variable.decides && now(variable.name) != nullptr;
    };
    const auto found = std::ranges::find_if(framework.variables, decides);
    return found == framework.variables.end() ? nullptr : &*found;
}

std::vector<const FrameworkVariable*> missing_variables(const Framework& framework, const Environment& now) {
    std::vector<const FrameworkVariable*> missing;
    if (deciding_variable(framework, now) != nullptr) return missing;
    for (const FrameworkVariable& variable : framework.variables)
        if (variable.value != nullptr && now(variable.name) == nullptr) missing.push_back(&variable);
    return missing;
}

bool is_set_up(const Framework& framework, const Environment& now) {
    const auto is_otherwise = [&](const FrameworkVariable& variable) {
        if (!variable.decides || variable.value == nullptr) return false;
        const char* const value = now(variable.name);
        return value == nullptr || std::string_view(value) != variable.value;
    };
    return std::ranges::none_of(framework.variables, is_otherwise);
}

}  // namespace lms::util
