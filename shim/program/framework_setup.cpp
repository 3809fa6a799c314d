#include "shim/program/framework_setup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shim/util/frameworks.h"
#include "shim/util/keep_errno.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"

namespace lms::shim {
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
    std::string names;                   // of these, between commas
    std::vector<const Framework*> left;  // the user has decided
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
    const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    char text[4096];
    const ssize_t bytes = read(file, text, sizeof text);
    close(file);
    return bytes > 0 && std::string_view(text, static_cast<std::size_t>(bytes)).find("\nThreads:\t1\n") !=
                            std::string_view::npos;
}

const char* in_environment(const char* variable) {
    return getenv(variable);
}

// A value that is not accepted is named later, with the other settings.
std::vector<const Framework*> wanted_frameworks() {
    std::vector<std::string> named_later;
    const auto getter = [](const char* variable) {
        return variable == "LMS_FRAMEWORKS"sv ? getenv(variable) : nullptr;
    };
    return *util::frameworks_of(parse_settings(getter, named_later).frameworks);
}

std::string values_of(const Framework& framework) {
    std::string text;
    for (const FrameworkVariable& variable : framework.variables) {
        const char* const value = getenv(variable.name);
        if (value != nullptr && std::string_view(value) == variable.value)
            text += fmt::format(" {}={}", variable.name, value);
    }
    return text;
}

[[gnu::constructor]] void set_up_frameworks() {
    const util::KeepErrno keep;
    if (getauxval(AT_SECURE) != 0 || !program_is_python() || !is_only_thread()) return;
    try {
        auto result = std::make_unique<Started>();
        for (const Framework* framework : wanted_frameworks()) {
            for (const FrameworkVariable* variable : util::missing_variables(*framework, in_environment))
                setenv(variable->name, variable->value, 0);
            if (util::is_set_up(*framework, in_environment)) {
                result->set_up.push_back({framework->name, values_of(*framework)});
                if (!result->names.empty()) result->names += ',';
                result->names += framework->name;
            } else {
                result->left.push_back(framework);
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
    for (const Started::SetUp& each : started->set_up)
        log::info("LMS_FRAMEWORKS: {} is set up:{}", each.framework, each.variables);
    for (const Framework* framework : started->left) {
        log::info("LMS_FRAMEWORKS: {} keeps {}, which is set already", framework->name,
                  framework->variables.front().name);
    }
}

std::string_view frameworks_set_up() noexcept {
    return started == nullptr ? std::string_view{} : started->names;
}

}  // namespace lms::shim
