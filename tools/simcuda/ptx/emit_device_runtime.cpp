// Calls of what devices and CUDA's device runtime have and a module only declares.
#include "tools/simcuda/ptx/device_runtime.h"
#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {

void FunctionEmitter::emit_system_call(std::string_view name, const Operand* results,
                                       const Operand* arguments) {
    const auto address = [&](std::size_t index) {
        if (!arguments || index >= arguments->parts.size() || !arguments->parts[index].declaration)
            throw Unsupported(std::string(name));
        return variable_address(*arguments->parts[index].declaration);
    };
    const auto argument = [&](std::size_t index, Type type) {
        return fmt::format("*({}*)({})", c_type(type), address(index));
    };
    const auto store_result = [&](Type type, const std::string& value) {
        if (!results || results->parts.size() != 1 || !results->parts[0].declaration)
            line("    {};", value);
        else
            line("    *({}*)({}) = {};", c_type(type), variable_address(*results->parts[0].declaration),
                 value);
    };
    const std::string runtime = "t->block->runtime->";
    out_.prints |= name == "vprintf";
    out_.uses_heap |=
        name == "malloc" || name == "free" || name == "__cudaCDP2Malloc" || name == "__cudaCDP2Free";
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
        line("    __atomic_store_n((u32*){}, {}, __ATOMIC_RELEASE);", other_side_text(argument(0, Type::U64)),
             argument(1, Type::U32));
    } else if (const DeviceCall* call = find_device_call(name)) {
        std::string given;
        for (std::size_t i = 0; i < call->arguments.size(); ++i) {
            const char kind = call->arguments[i];
            const std::string value = kind == 'a'   ? address(i)
                                      : kind == 'i' ? argument(i, Type::U32)
                                                    : argument(i, Type::U64);
            given += kind == 'p' ? fmt::format("{0} ? {0} : 2, ", value) : value + ", ";
        }
        line("    {{ const u64 given[] = {{{}0}};", given);
        out_.waits |= call->waits;
        out_.needs_stack |= call->waits;
        store_result(
            call->result == 'l' ? Type::B64 : Type::B32,
            fmt::format("{}call(t, (enum sc_call){}, given)", runtime, static_cast<int>(call->call)));
        line("    }}");
    } else {
        throw Unsupported(std::string(name));
    }
}

}  // namespace simcuda::ptx
