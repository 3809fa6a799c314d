// Calls of what CUDA's device runtime has and a module only declares.
#include "tools/simcuda/address.h"
#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {

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

}  // namespace simcuda::ptx
