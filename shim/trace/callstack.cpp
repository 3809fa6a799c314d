#include "shim/trace/callstack.h"

#include <fmt/format.h>
#include <libunwind.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <string_view>

#include "shim/trace/demangle.h"
#include "shim/trace/python_frames.h"

namespace lms::trace {
namespace {

constexpr std::size_t kMostPythonFrames = 16;

std::string_view file_name(const char* path) {
    const std::string_view whole = path == nullptr ? "" : path;
    return whole.substr(whole.rfind('/') + 1);
}

std::string describe(std::uintptr_t address, const Dl_info& info) {
    const std::string place = fmt::format("{}+{:#x}", file_name(info.dli_fname),
                                          address - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
    if (info.dli_sname == nullptr) return place;
    return fmt::format("{}+{:#x} ({})", demangled(info.dli_sname),
                       address - reinterpret_cast<std::uintptr_t>(info.dli_saddr), place);
}

// Gives `visit` the calls that led to the function it is in, innermost first, until it returns false.
template <typename Visit>
[[gnu::always_inline]] inline void walk(Visit&& visit) {
    unw_context_t context;
    unw_cursor_t cursor;
    if (unw_getcontext(&context) != 0 || unw_init_local(&cursor, &context) != 0) return;
    while (unw_step(&cursor) > 0) {
        unw_word_t next = 0;
        if (unw_get_reg(&cursor, UNW_REG_IP, &next) != 0 || next == 0) return;
        // The address is where the callee returns to; the call is before it, perhaps in another function.
        if (!visit(std::uintptr_t{next - 1})) return;
    }
}

bool in_shim_or_runtime(const Dl_info& module) {
    Dl_info own;
    if (dladdr(reinterpret_cast<const void*>(&in_shim_or_runtime), &own) != 0 &&
        own.dli_fbase == module.dli_fbase) {
        return true;
    }
    return file_name(module.dli_fname).starts_with("libcudart.so");
}

}  // namespace

std::vector<std::string> call_site() noexcept {
    return call_site(in_shim_or_runtime);
}

std::vector<std::string> call_site(bool (*skip)(const Dl_info& module)) noexcept try {
    std::vector<std::string> frames;
    const PythonFrames python = python_frames(kMostPythonFrames);
    Dl_info interpreter{};
    if (python.interpreter) dladdr(python.interpreter, &interpreter);
    walk([&](std::uintptr_t address) {
        Dl_info info{};
        const bool known = dladdr(reinterpret_cast<const void*>(address), &info) != 0;
        // What called the interpreter is told by its own frames.
        if (known && python.interpreter && info.dli_fbase == interpreter.dli_fbase) return false;
        if (!known) {
            frames.push_back(fmt::format("{:#x}", address));
        } else if (!frames.empty() || !skip(info)) {
            frames.push_back(describe(address, info));
        }
        return frames.size() < kMostPythonFrames;
    });
    std::ranges::copy(python.frames, std::back_inserter(frames));
    return frames;
} catch (const std::exception&) {
    return {};
}

bool called_from(bool (*matches)(std::uintptr_t address)) noexcept {
    constexpr int kDeepest = 64;
    bool found = false;
    int depth = 0;
    walk([&](std::uintptr_t address) {
        found = matches(address);
        return !found && ++depth < kDeepest;
    });
    return found;
}

}  // namespace lms::trace
