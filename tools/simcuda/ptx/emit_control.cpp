// Branches, calls and the ends of threads.
#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {

std::string FunctionEmitter::label_name(const Operand& operand, const Instruction& instruction) {
    if (operand.label < 0) refuse(instruction);
    return function_.labels[static_cast<std::size_t>(operand.label)].c_name;
}

void FunctionEmitter::emit_branch(const Instruction& instruction) {
    allow(instruction, "uni");
    expect_operands(instruction, 1, 1);
    if (waiting_branches_.contains(position_)) {
        out_.waits = out_.needs_stack = true;
        line("    if (--t->budget == 0) t->block->runtime->yield(t);");
    }
    line("    goto {};", label_name(instruction.operands[0], instruction));
}

void FunctionEmitter::emit_indexed_branch(const Instruction& instruction) {
    allow(instruction, "idx uni");
    expect_operands(instruction, 2, 2);
    const Operand& table = instruction.operands[1];
    if (table.label < 0) refuse(instruction);
    line("    switch ({}) {{", read(instruction.operands[0], Type::U32));
    int index = 0;
    for (const Operand& target : function_.labels[static_cast<std::size_t>(table.label)].targets)
        line("    case {}: goto {};", index++, label_name(target, instruction));
    line("    default: __builtin_unreachable();\n    }}");
}

// call (results), target, (arguments), prototype: each part but the target may be absent.
void FunctionEmitter::emit_call(const Instruction& instruction) {
    allow(instruction, "uni");
    const Operand* results = nullptr;
    const Operand* arguments = nullptr;
    std::size_t at = 0;
    const auto& operands = instruction.operands;
    if (at < operands.size() && operands[at].kind == Operand::Kind::List) results = &operands[at++];
    if (at == operands.size()) refuse(instruction);
    const Operand& target = operands[at++];
    if (at < operands.size() && operands[at].kind == Operand::Kind::List) arguments = &operands[at++];

    std::string call_arguments;
    std::string parameter_types;
    std::string before;
    std::string after;
    int temporaries = 0;
    const auto pass = [&](const Operand* list, bool result) {
        if (!list) return;
        for (const Operand& argument : list->parts) {
            parameter_types += ", u64";
            if (argument.kind == Operand::Kind::Name && argument.declaration) {
                call_arguments += ", " + variable_address(*argument.declaration);
                continue;
            }
            // A register or literal travels in a temporary.
            const Type type = argument.kind == Operand::Kind::Register
                                  ? register_of(argument).type
                                  : (argument.real_bytes == 4 ? Type::F32 : Type::B64);
            const int index = temporaries++;
            call_arguments += fmt::format(", (u64)&pass{}", index);
            before += result
                          ? fmt::format("    {} pass{};\n", c_type(type), index)
                          : fmt::format("    {} pass{} = {};\n", c_type(type), index, read(argument, type));
            if (!result) continue;
            std::string written;
            written.swap(out_.text);
            write(argument, type, fmt::format("pass{}", index));
            written.swap(out_.text);
            after += written;
        }
    };
    const Function* callee =
        target.kind == Operand::Kind::Name ? module_.find_function(target.name) : nullptr;
    if (target.kind == Operand::Kind::Name && !(callee && callee->defined))
        return emit_system_call(target.name, results, arguments);
    pass(results, true);
    pass(arguments, false);
    line("    {{");
    out_.text += before;
    // Threads that return at different times meet behind the call.
    const bool meets = may_meet(instruction);
    if (meets) line("    t->calls += 1ul << 48;");
    if (callee) {
        out_.callees.insert(callee);
        line("    {}(t{});", c_name(*callee), call_arguments);
    } else {
        out_.calls_indirectly = true;
        line("    ((void (*)(struct sc_thread*{})){})(t{});", parameter_types, read(target, Type::B64),
             call_arguments);
    }
    if (meets) line("    t->calls -= 1ul << 48;");
    out_.text += after;
    line("    }}");
    if (meets) emit_join();
}

void FunctionEmitter::emit_return(const Instruction& instruction) {
    allow(instruction, "uni");
    for (const Declaration* result : function_.results) {
        if (!result->in_register) continue;
        Operand source;
        source.kind = Operand::Kind::Register;
        source.reg = result->parameter_register;
        line("    *({}*){} = {};", c_type(result->type), result->c_name, read(source, result->type));
    }
    line(liveness_ ? "    return SC_ENDED;" : "    return;");
}

void FunctionEmitter::emit_exit(const Instruction& instruction) {
    if (function_.entry) {
        emit_return(instruction);
    } else {
        out_.exits = true;
        line("    t->block->runtime->exit(t);");
    }
}

void FunctionEmitter::emit_trap(const Instruction&) {
    line("    t->block->runtime->trap(t);");
}

void FunctionEmitter::emit_grid_control(const Instruction& instruction) {
    allow(instruction, "launch_dependents wait");
    expect_operands(instruction, 0, 0);
    if (instruction.modifiers.size() != 1) refuse(instruction);
    if (instruction.has("launch_dependents")) {
        out_.lets_dependents_go = true;
        line("    t->block->runtime->let_dependents_go(t);");
        return;
    }
    out_.waits = out_.waits_for_grids = true;
    if (liveness_) return stop("SC_AT_GRIDS");
    line("    t->block->runtime->wait_for_grids(t);");
}

// A breakpoint without a debugger, a performance event without a profiler.
void FunctionEmitter::emit_nothing(const Instruction&) {}

}  // namespace simcuda::ptx
