// Reachability, shared memory layout and the text of a unit.
#include "tools/simcuda/ptx/unit_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tools/simcuda/exec/abi.h"
#include "tools/simcuda/exec/tally.h"
#include "tools/simcuda/ptx/count.h"
#include "tools/simcuda/ptx/lost_writes.h"
#include "tools/simcuda/ptx/prelude.h"

namespace simcuda::ptx {
namespace {

// True when `from` can call itself.
bool is_recursive(const EmittedFunctions& emitted, const Function* from) {
    std::set<const Function*> seen;
    const std::function<bool(const Function*)> reaches = [&](const Function* function) {
        for (const Function* callee : emitted.at(function).callees) {
            if (callee == from) return true;
            if (seen.insert(callee).second && reaches(callee)) return true;
        }
        return false;
    };
    return reaches(from);
}

// The block and its parameters are copied to where no pointer of the kernel's leads: the compiler may then
// read them once for all threads.
std::string block_copy(const Function& kernel) {
    std::uint64_t bytes = 1;
    for (const Declaration* parameter : kernel.parameters)
        bytes = std::max(bytes, parameter->offset + parameter->bytes);
    return fmt::format(R"(
    u8 parameters[{0}] __attribute__((aligned(16)));
    struct sc_block block = *b;
    struct sc_thread thread, *t = &thread;
    __builtin_memcpy(parameters, b->parameters, {0});
    block.parameters = parameters;
    thread.block = &block;
    thread.stack_limit = stack_limit;
)",
                       bytes);
}

std::string loop_entry(const Function& kernel) {
    return fmt::format(R"(
__attribute__((visibility("default"))) void {0}(const struct sc_block* b, u64 stack_limit) {{{1}
    u32 index = 0;
    for (u32 z = 0; z < block.ntid[2]; ++z)
        for (u32 y = 0; y < block.ntid[1]; ++y)
            for (u32 x = 0; x < block.ntid[0]; ++x, ++index) {{
                thread.tid[0] = x; thread.tid[1] = y; thread.tid[2] = z;
                thread.lane = index & 31; thread.warp = index >> 5;
                {2}(t);
            }}
}}
)",
                       entry_symbol(kernel), block_copy(kernel), FunctionEmitter::c_name(kernel));
}

// Threads that begin together get code of their own: they know more, and most of what a kernel does once is
// there.
std::string steps_entry(const Function& kernel) {
    return fmt::format(R"(
#define EACH(GO) for (u32 i = first; i < end; ++i) {{ \
        thread.tid[0] = s->tid[0][i]; thread.tid[1] = s->tid[1][i]; thread.tid[2] = s->tid[2][i]; \
        thread.lane = i & 31; thread.warp = i >> 5; GO }}
#define STEP(AT) s->at[i] = {2}(t, s, (struct {2}_kept*)kept, i, AT)
__attribute__((visibility("default")))
void {0}(const struct sc_block* b, u64 stack_limit, struct sc_steps* s, void* kept, u32 first, u32 end, u32 at) {{{1}
    if (at == 0) EACH(STEP(0);)
    else EACH(if (s->at[i] <= SC_AT_SITE) STEP(s->at[i]);)
}}
)",
                       entry_symbol(kernel), block_copy(kernel), FunctionEmitter::c_name(kernel));
}

std::string fiber_entry(const Function& kernel) {
    return fmt::format(
        "\n__attribute__((visibility(\"default\"))) void {}(struct sc_thread* t) {{ {}(t); }}\n",
        entry_symbol(kernel), FunctionEmitter::c_name(kernel));
}

}  // namespace

Reach reach_of(const Module& module, const EmittedFunctions& emitted,
               const std::vector<const Function*>& kernels) {
    std::set<const Function*> reached(kernels.begin(), kernels.end());
    std::vector<const Function*> pending(kernels);
    Reach reach;
    bool indirect = false;
    const auto visit = [&](const Function* function) {
        if (reached.insert(function).second) pending.push_back(function);
    };
    while (!pending.empty()) {
        const EmittedFunction& function = emitted.at(pending.back());
        pending.pop_back();
        for (const Function* callee : function.callees) visit(callee);
        if (!function.calls_indirectly || indirect) continue;
        // Whatever has its address somewhere may be called.
        indirect = true;
        for (const auto& candidate : module.functions)
            if (!candidate->entry && candidate->defined) visit(candidate.get());
    }
    std::set<const Declaration*> shared;
    for (const auto& candidate : module.functions) {
        if (!reached.contains(candidate.get())) continue;
        const EmittedFunction& function = emitted.at(candidate.get());
        reach.functions.push_back(candidate.get());
        if (reach.unsupported.empty()) reach.unsupported = function.unsupported;
        reach.waits |= function.waits || (function.exits && !candidate->entry);
        reach.needs_stacks |= candidate->entry ? function.needs_stack || function.local_bytes != 0
                                               : function.waits || function.exits;
        reach.has_matrices |= function.has_matrices;
        reach.prints |= function.prints;
        reach.uses_heap |= function.uses_heap;
        reach.lets_dependents_go |= function.lets_dependents_go;
        reach.waits_for_grids |= function.waits_for_grids;
        reach.uses_function_addresses |= function.takes_function_address || function.calls_indirectly;
        reach.recursive |= is_recursive(emitted, candidate.get());
        reach.frame_bytes += function.frame_bytes;
        reach.local_bytes += function.local_bytes;
        shared.insert(function.shared.begin(), function.shared.end());
    }
    reach.recursive |= indirect;
    for (const Declaration& variable : module.variables)
        if (shared.contains(&variable)) reach.shared.push_back(&variable);
    for (const Function* function : reach.functions)
        for (const Declaration& variable : function->declarations)
            if (shared.contains(&variable)) reach.shared.push_back(&variable);
    return reach;
}

SharedLayout lay_out(const Reach& reach) {
    SharedLayout layout;
    const auto align = [&](std::uint64_t alignment) {
        layout.static_bytes = (layout.static_bytes + alignment - 1) / alignment * alignment;
    };
    for (const Declaration* variable : reach.shared) {
        if (variable->external) {
            layout.offsets.push_back(0);
            continue;
        }
        align(std::max<std::uint64_t>(variable->alignment, 1));
        layout.offsets.push_back(layout.static_bytes);
        layout.static_bytes += variable->bytes;
    }
    for (const Declaration* variable : reach.shared)
        if (variable->external) align(std::max<std::uint64_t>(variable->alignment, 16));
    for (std::size_t i = 0; i < reach.shared.size(); ++i)
        if (reach.shared[i]->external) layout.offsets[i] = layout.static_bytes;
    return layout;
}

std::string entry_symbol(const Function& kernel) {
    return "sc_" + FunctionEmitter::c_name(kernel);
}

std::string unit_text(const Module&, const EmittedFunctions& emitted, const Reach& reach,
                      const std::vector<const Function*>& kernels, bool export_functions) {
    std::string text = exec::kAbiText;
    for (const char* part : {kPreludeIntegers, kPreludeFloats, kPreludeConversions, kPreludeHalves,
                             kPreludeMemory, kPreludeSmallFloats, reach.has_matrices ? kPreludeMatrices : ""})
        text += part;
    if (counts_work() || writes_may_be_lost()) text += exec::kTallyText;
    if (counts_work()) text += kPreludeCounting;
    if (writes_may_be_lost()) text += kPreludeLosing;
    const SharedLayout layout = lay_out(reach);
    for (std::size_t i = 0; i < reach.shared.size(); ++i)
        text += fmt::format("enum {{ {} = {} }};\n", reach.shared[i]->c_name, layout.offsets[i]);
    for (const Function* function : reach.functions)
        if (!function->entry) text += FunctionEmitter::c_head(*function) + ";\n";
    for (const Function* function : reach.functions) {
        text += '\n';
        text += emitted.at(function).text;
        if (export_functions && !function->entry)
            text += fmt::format("__attribute__((visibility(\"default\"))) void* const a_{0} = (void*){0};\n",
                                FunctionEmitter::c_name(*function));
    }
    for (const Function* kernel : kernels) {
        text += emitted.at(kernel).stops ? steps_entry(*kernel)
                : reach.waits            ? fiber_entry(*kernel)
                                         : loop_entry(*kernel);
    }
    return text;
}

}  // namespace simcuda::ptx
