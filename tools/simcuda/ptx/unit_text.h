// Gathers what a kernel needs into one C text: the functions it reaches, the layout of its shared memory, its
// entry.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/simcuda/ptx/emitter.h"

namespace simcuda::ptx {

using EmittedFunctions = std::map<const Function*, EmittedFunction>;

// What holds for a set of kernels and everything they may call.
struct Reach {
    std::vector<const Function*> functions;  // in the module's order
    std::string unsupported;                 // the first thing among them that cannot be translated
    bool waits = false;
    bool needs_stacks = false;  // if it waits: local memory and calls must outlive that
    bool has_matrices = false;
    bool prints = false;
    bool uses_heap = false;
    bool lets_dependents_go = false;
    bool waits_for_grids = false;
    bool uses_function_addresses = false;
    bool recursive = false;  // or indirect calls, which may be
    std::uint64_t frame_bytes = 0;
    std::uint64_t local_bytes = 0;
    std::vector<const Declaration*> shared;  // in the module's order
};
Reach reach_of(const Module& module, const EmittedFunctions& emitted,
               const std::vector<const Function*>& kernels);

struct SharedLayout {
    std::vector<std::uint64_t> offsets;  // of Reach::shared; dynamic shared memory begins at the static's end
    std::uint64_t static_bytes = 0;
};
SharedLayout lay_out(const Reach& reach);

// The name a kernel's entry is exported under.
std::string entry_symbol(const Function& kernel);

// `exported` functions get a symbol with their address, for variables that are initialised with it.
std::string unit_text(const Module& module, const EmittedFunctions& emitted, const Reach& reach,
                      const std::vector<const Function*>& kernels, bool export_functions);

}  // namespace simcuda::ptx
