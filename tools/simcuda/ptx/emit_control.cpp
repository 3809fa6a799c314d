// Branches, calls and the ends of threads.
#include "tools/simcuda/address.h"
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
        out_.waits = true;
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
    if (callee) {
        out_.callees.insert(callee);
        line("    {}(t{});", c_name(*callee), call_arguments);
    } else {
        out_.calls_indirectly = true;
        line("    ((void (*)(struct sc_thread*{})){})(t{});", parameter_types, read(target, Type::B64),
             call_arguments);
    }
    out_.text += after;
    line("    }}");
}

// Functions that CUDA's device runtime has and a module only declares.
void FunctionEmitter::emit_system_call(std::string_view name, const Operand* results,
                                       const Operand* arguments) {
    const auto argument = [&](std::size_t index, Type type) {
        if (!arguments || index >= arguments->parts.size() || !arguments->parts[index].declaration)
            throw Unsupported(std::string(name));
        return fmt::format("*({}*)({})", c_type(type),
                           variable_address(*arguments->parts[index].declaration));
    };
    const auto store_result = [&](Type type, const std::string& value) {
        if (!results || results->parts.size() != 1 || !results->parts[0].declaration)
            line("    {};", value);
        else
            line("    *({}*)({}) = {};", c_type(type), variable_address(*results->parts[0].declaration),
                 value);
    };
    const std::string runtime = "t->block->runtime->";
    if (name == "vprintf") {
        store_result(Type::B32, fmt::format("{}print(t, {}, {})", runtime, argument(0, Type::U64),
                                            argument(1, Type::U64)));
    } else if (name == "__assertfail") {
        line("    {}assert_fail(t, {}, {}, {}, {});", runtime, argument(0, Type::U64), argument(1, Type::U64),
             argument(2, Type::U32), argument(3, Type::U64));
    } else if (name == "malloc") {
        store_result(Type::B64, fmt::format("{}allocate(t, {})", runtime, argument(0, Type::U64)));
    } else if (name == "free") {
        line("    {}release(t, {});", runtime, argument(0, Type::U64));
    } else if (name == "cudaGraphSetConditional") {
        // The handle is the address of the value.
        line("    __atomic_store_n((u32*)({} - {:#x}ul), {}, __ATOMIC_RELEASE);", argument(0, Type::U64),
             kDeviceToHost, argument(1, Type::U32));
    } else if (name == "__cudaCDP2GetParameterBufferV2") {
        const auto shape = [&](std::size_t index) { return "&" + argument(index, Type::U32); };
        store_result(Type::B64,
                     fmt::format("{}prepare_launch(t, {}, {}, {}, {})", runtime, argument(0, Type::U64),
                                 shape(1), shape(2), argument(3, Type::U32)));
    } else if (name == "__cudaCDP2LaunchDeviceV2") {
        store_result(Type::B32, fmt::format("{}launch(t, {}, {})", runtime, argument(0, Type::U64),
                                            argument(1, Type::U64)));
    } else if (name == "__cudaCDP2StreamCreateWithFlags") {
        // Children run one after another, so streams need no more than a handle.
        line("    *(u64*)({} - {:#x}ul) = 16;", argument(0, Type::U64), kDeviceToHost);
        store_result(Type::B32, "0");
    } else if (name == "__cudaCDP2StreamDestroy" || name == "__cudaCDP2GetLastError" ||
               name == "__cudaCDP2PeekAtLastError") {
        store_result(Type::B32, "0");
    } else if (name == "__cudaCDP2Malloc") {
        line("    {{ const u64 memory = {}allocate(t, {}); *(u64*)({} - {:#x}ul) = memory;", runtime,
             argument(1, Type::U64), argument(0, Type::U64), kDeviceToHost);
        store_result(Type::B32, "memory ? 0 : 2");
        line("    }}");
    } else if (name == "__cudaCDP2Free") {
        line("    {}release(t, {});", runtime, argument(0, Type::U64));
        store_result(Type::B32, "0");
    } else {
        throw Unsupported(std::string(name));
    }
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
    line("    return;");
}

void FunctionEmitter::emit_exit(const Instruction&) {
    if (function_.entry) {
        line("    return;");
    } else {
        out_.exits = true;
        line("    t->block->runtime->exit(t);");
    }
}

void FunctionEmitter::emit_trap(const Instruction&) {
    line("    t->block->runtime->trap(t);");
}

// A breakpoint without a debugger, a performance event without a profiler.
void FunctionEmitter::emit_nothing(const Instruction&) {}

}  // namespace simcuda::ptx
