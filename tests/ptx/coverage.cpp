// Instructions by kernel, and those of the kernels that ran.
#include "tests/ptx/coverage.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "tools/simcuda/ptx/parser.h"

namespace simcuda::testing {
namespace {

using Opcodes = std::set<std::string, std::less<>>;

std::mutex g_mutex;
std::map<const ptx::Kernel*, std::shared_ptr<Opcodes>> g_opcodes_of;
Opcodes g_run;

constexpr std::string_view kRun[] = {
#define RUN(...) __VA_ARGS__,
#define REFUSED(...)
#include "tests/ptx/opcodes.def"
};
constexpr std::string_view kRefused[] = {
#define RUN(...)
#define REFUSED(...) __VA_ARGS__,
#include "tests/ptx/opcodes.def"
};

}  // namespace

std::span<const std::string_view> table_of_run() {
    return kRun;
}
std::span<const std::string_view> table_of_refused() {
    return kRefused;
}

void note_module(const ptx::Program& program, std::string_view text) {
    const auto module = ptx::Parser::parse(text);
    Opcodes shared;  // of functions, which any kernel may call
    std::map<std::string_view, std::shared_ptr<Opcodes>> own;
    for (const auto& function : module->functions) {
        auto& into = own[function->name];
        if (!into) into = std::make_shared<Opcodes>();
        for (const ptx::Statement& statement : function->body)
            if (statement.label < 0) (function->entry ? *into : shared).emplace(statement.instruction.text);
    }
    const std::lock_guard lock(g_mutex);
    for (const ptx::Kernel& kernel : program.kernels()) {
        own[kernel.name]->insert(shared.begin(), shared.end());
        g_opcodes_of[&kernel] = own[kernel.name];
    }
}

void note_run(const ptx::Kernel& kernel) {
    const std::lock_guard lock(g_mutex);
    if (const auto found = g_opcodes_of.find(&kernel); found != g_opcodes_of.end())
        g_run.insert(found->second->begin(), found->second->end());
}

int report_never_run() {
    int missing = 0;
    for (std::string_view opcode : kRun) {
        if (g_run.contains(opcode)) continue;
        fmt::print("opcodes.def: no test ran {}\n", opcode);
        ++missing;
    }
    return missing;
}

}  // namespace simcuda::testing
