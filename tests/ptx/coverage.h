// Which instructions the tests of this program have run, to hold against the table of those that programs use
// (opcodes.def).
#pragma once

#include <span>
#include <string_view>

#include "tools/simcuda/ptx/program.h"

namespace simcuda::testing {

// Those of the table that are translated, and those that are refused.
std::span<const std::string_view> table_of_run();
std::span<const std::string_view> table_of_refused();

// Tells what `text` translated to. Call before its kernels are run.
void note_module(const ptx::Program& program, std::string_view text);
// The kernel ran to its end.
void note_run(const ptx::Kernel& kernel);

// Prints the instructions of the table that no test has run. Returns how many there are.
int report_never_run();

}  // namespace simcuda::testing
