#include "shim/program/framework_setup.h"

#include <fmt/format.h>
#include <link.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shim/program/system_gpus.h"
#include "shim/util/frameworks.h"
#include "shim/util/keep_errno.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"
#include "shim/util/small_file.h"

namespace lms::program {
namespace {

using namespace std::literals;

using util::Framework;
using util::FrameworkVariable;

struct Started {
    struct SetUp {
        std::string_view framework;
        std::string variables;  // " NAME=VALUE" for each that it has from here, or from a parent
    };
    std::vector<SetUp> set_up;
    std::string names;  // of these, between commas
    struct Left {
        std::string_view framework;
        std::string_view variable;  // by which the user has decided
    };
    std::vector<Left> left;
    bool no_pools = false;  // a GPU may have none, so `auto` means no framework
};
// Never destroyed: threads may ask while the process exits. Null: the program is not CPython.
constinit const Started* started = nullptr;

// The interpreter itself, whether it holds CPython or links libpython: its `main` calls this function, so its
// table of dynamic symbols names it. Programs that embed Python have a `main` of their own.
constexpr std::string_view kMain = "\0Py_BytesMain\0"sv;

int look_at_program(dl_phdr_info* info, std::size_t, void* into) {
    const char* names = nullptr;
    std::size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; ++entry) {
            // The loader has made an address of it.
            if (entry->d_tag == DT_STRTAB)
                names =
                    reinterpret_cast<const char*>(entry->d_un.d_ptr);  // NOLINT(performance-no-int-to-ptr)
            if (entry->d_tag == DT_STRSZ) bytes = entry->d_un.d_val;
        }
    }
    *static_cast<bool*>(into) =
        names != nullptr && std::string_view(names, bytes).find(kMain) != std::string_view::npos;
    return 1;  // the first is the program
}

bool program_is_python() {
    bool python = false;
    dl_iterate_phdr(look_at_program, &python);
    return python;
}

// Another thread may look at the environment while it is changed. There is one before `main` where another
// preloaded library has started it, or where the shim is loaded later.
bool is_only_thread() {
    return util::small_file("/proc/self/status").find("\nThreads:\t1\n") != std::string::npos;
}

const char* in_environment(const char* variable) {
    return getenv(variable);
}

// A value that is not accepted is named later, with the other settings.
std::string setting() {
    std::vector<std::string> named_later;
    const auto getter = [](const char* variable) {
        return variable == "LMS_FRAMEWORKS"sv ? getenv(variable) : nullptr;
    };
    return parse_settings(getter, named_later).frameworks;
}

std::string values_of(const Framework& framework) {
    std::string text;
    for (const FrameworkVariable& variable : framework.variables) {
        const char* const value = getenv(variable.name);
        if (value != nullptr && variable.value != nullptr && std::string_view(value) == variable.value)
            text += fmt::format(" {}={}", variable.name, value);
    }
    return text;
}

[[gnu::constructor]] void set_up_frameworks() {
    const util::KeepErrno keep;
    if (getauxval(AT_SECURE) != 0 || !program_is_python()) return;
    try {
        if (!is_only_thread()) return;
        auto result = std::make_unique<Started>();
        const std::string wanted = setting();
        // JAX asked for an allocator of pools ends the process where there are none.
        result->no_pools = wanted == "auto" && may_lack_pools();
        const auto frameworks = util::frameworks_of(result->no_pools ? "off" : wanted);
        for (const Framework* framework : *frameworks) {
            for (const FrameworkVariable* variable : util::missing_variables(*framework, in_environment))
                setenv(variable->name, variable->value, 0);
            if (util::is_set_up(*framework, in_environment)) {
                result->set_up.push_back({framework->name, values_of(*framework)});
                if (!result->names.empty()) result->names += ',';
                result->names += framework->name;
            } else if (const auto* variable = util::deciding_variable(*framework, in_environment)) {
                result->left.push_back({framework->name, variable->name});
            }
        }
        started = result.release();
    } catch (...) {
        // Out of memory: what is not set yet stays so.
    }
}

}  // namespace

void tell_frameworks() {
    if (started == nullptr) return;
    if (started->no_pools)
        log::info(
            "LMS_FRAMEWORKS=auto sets up none: a GPU may lack memory pools; LMS_FRAMEWORKS=jax sets up JAX");
    for (const Started::SetUp& each : started->set_up)
        log::info("LMS_FRAMEWORKS: {} is set up:{}", each.framework, each.variables);
    for (const Started::Left& each : started->left)
        log::info("LMS_FRAMEWORKS: {} keeps {}, which is set already", each.framework, each.variable);
}

std::string_view frameworks_set_up() noexcept {
    return started == nullptr ? std::string_view{} : started->names;
}

}  // namespace lms::program
