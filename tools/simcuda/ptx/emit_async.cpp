// cp.async and mbarrier. A copy is made when it is issued, which is one of the times a GPU may make it; so
// groups are complete at once, and what arrives on behalf of copies arrives at once.
#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {

// cp.async.{ca cg}.shared.global [to], [from], bytes {, source bytes or predicate to ignore it} {, policy}
void FunctionEmitter::emit_async_copy(const Instruction& instruction) {
    const auto& operands = instruction.operands;
    if (instruction.has("mbarrier")) {
        allow(instruction, "async mbarrier arrive noinc shared shared::cta");
        expect_operands(instruction, 1, 1);
        // Without .noinc the arrival has first been added to those expected.
        if (!instruction.has("noinc")) return;
        Space space = space_of(instruction);
        line("    sc_mbarrier_arrive({}, 1, 0);", host_address(operands[0], space));
        return;
    }
    if (instruction.has("commit_group") || instruction.has("wait_all") || instruction.has("wait_group"))
        return allow(instruction, "async commit_group wait_all wait_group");
    allow(instruction, "async ca cg shared shared::cta global L2::cache_hint L2::64B L2::128B L2::256B");
    if (!instruction.has("ca") && !instruction.has("cg")) refuse(instruction);
    const std::size_t policy = instruction.has("L2::cache_hint");
    expect_operands(instruction, 3 + policy, 4 + policy);
    Space shared = Space::Shared;
    Space global = Space::Global;
    line("    {{ const u64 to = {}, from = {}; const u32 bytes = {};", host_address(operands[0], shared),
         host_address(operands[1], global), read(operands[2], Type::U32));
    emit_touch(Space::Global, "from", "bytes", false);
    std::string given = "bytes";
    if (operands.size() == 4 + policy) {
        const bool ignores =
            operands[3].kind == Operand::Kind::Register && register_of(operands[3]).type == Type::Pred;
        given = ignores ? fmt::format("{} ? 0 : bytes", read(operands[3], Type::Pred))
                        : read(operands[3], Type::U32);
    }
    line("    sc_async_copy(to, from, bytes, {}); }}", given);
}

// st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes{.v2 .v4}.type [to], value, [barrier]: both
// lie with one block of the cluster. It is made at once, like a copy.
void FunctionEmitter::emit_async_store(const Instruction& instruction) {
    allow(instruction, "async weak shared::cluster mbarrier::complete_tx::bytes v2 v4");
    expect_operands(instruction, 3, 3);
    const Type type = instruction.type();
    const Operand& value = instruction.operands[1];
    const bool vector = value.kind == Operand::Kind::Vector;
    const std::size_t count = instruction.has("v2") ? 2 : instruction.has("v4") ? 4 : 1;
    if (instruction.types.size() != 1 || (bytes_of(type) != 4 && bytes_of(type) != 8) ||
        !instruction.has("mbarrier::complete_tx::bytes") || (vector ? value.parts.size() : 1) != count)
        refuse(instruction);
    Space to = Space::Cluster, barrier = Space::Cluster;
    line("    {{ {0}* to = ({0}*)({1});", c_type(type), host_address(instruction.operands[0], to));
    for (std::size_t i = 0; i < count; ++i)
        line("    to[{}] = {};", i, observed(vector ? value.parts[i] : value, type));
    line("    sc_mbarrier_change({}, 0, 0, -{}); }}", host_address(instruction.operands[2], barrier),
         bytes_of(type) * count);
}

// Barriers in shared memory, completed in phases.
void FunctionEmitter::emit_memory_barrier(const Instruction& instruction) {
    allow(instruction,
          "init inval arrive arrive_drop test_wait try_wait pending_count parity noComplete expect_tx "
          "complete_tx shared "
          "shared::cta shared::cluster release "
          "acquire relaxed cta cluster");
    const auto& operands = instruction.operands;
    if (instruction.has("pending_count")) {
        expect_operands(instruction, 2, 2);
        return write(operands[0], Type::B32, fmt::format("{} & 0xfffff", read(operands[1], Type::B64)));
    }
    Space space = space_of(instruction);
    if (instruction.has("init")) {
        expect_operands(instruction, 2, 2);
        line("    *(u64*)({}) = {} * 0x100001ul;", host_address(operands[0], space),
             read(operands[1], Type::U32));
    } else if (instruction.has("inval")) {
        expect_operands(instruction, 1, 1);
        line("    *(u64*)({}) = 0;", host_address(operands[0], space));
    } else if (instruction.has("expect_tx") || instruction.has("complete_tx")) {
        // mbarrier.expect_tx [barrier], bytes; with .arrive it gives the state, and is one arrival
        const bool arrives = instruction.has("arrive") || instruction.has("arrive_drop");
        expect_operands(instruction, 2 + arrives, 2 + arrives);
        const std::string change = fmt::format(
            "sc_mbarrier_change({}, {:d}, {:d}, {}{})", host_address(operands[arrives], space), arrives,
            instruction.has("arrive_drop"), instruction.has("complete_tx") ? "-(s32)" : "",
            read(operands[1 + arrives], Type::U32));
        if (arrives)
            write(operands[0], Type::B64, change);
        else
            line("    {};", change);
    } else if (instruction.has("arrive") || instruction.has("arrive_drop")) {
        expect_operands(instruction, 2, 3);
        const std::string count = operands.size() == 3 ? read(operands[2], Type::U32) : "1";
        write(operands[0], Type::B64,
              fmt::format("sc_mbarrier_arrive({}, {}, {})", host_address(operands[1], space), count,
                          instruction.has("arrive_drop") ? count : "0"));
    } else if (instruction.has("test_wait") || instruction.has("try_wait")) {
        // try_wait may name a time to wait at most; it may also return before.
        expect_operands(instruction, 3, instruction.has("try_wait") ? 4 : 3);
        const std::string phase = fmt::format("*(u64*)({}) >> 61", host_address(operands[1], space));
        write(operands[0], Type::Pred,
              instruction.has("parity")
                  ? fmt::format("(({} ^ {}) & 1) != 0", phase, read(operands[2], Type::U32))
                  : fmt::format("({}) != ({} >> 61)", phase, read(operands[2], Type::B64)));
    } else {
        refuse(instruction);
    }
}

}  // namespace simcuda::ptx
