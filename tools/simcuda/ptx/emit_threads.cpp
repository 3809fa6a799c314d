// Barriers and warp-synchronous instructions: what makes a kernel need fibers.
#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {

// bar / barrier {.cta} {.sync .arrive .red .warp} {.popc .and .or} {.aligned}
void FunctionEmitter::emit_barrier(const Instruction& instruction) {
    allow(instruction, "cta sync arrive red warp popc and or aligned");
    out_.waits = true;
    const auto& operands = instruction.operands;
    if (instruction.has("warp")) {
        expect_operands(instruction, 1, 1);
        line("    t->block->runtime->warp(t, SC_WARP_SYNC, {}, 0, 0);", read(operands[0], Type::U32));
        return;
    }
    if (instruction.has("red")) {
        // d, barrier {, threads}, predicate
        expect_operands(instruction, 3, 4);
        const std::string threads = operands.size() == 4 ? read(operands[2], Type::U32) : "0";
        const std::string_view operation = instruction.has("popc")  ? "SC_BARRIER_POPC"
                                           : instruction.has("and") ? "SC_BARRIER_AND"
                                                                    : "SC_BARRIER_OR";
        const Type type = instruction.has("popc") ? Type::U32 : Type::Pred;
        write(operands[0], type,
              fmt::format("t->block->runtime->barrier(t, {}, {}, {}, {})", read(operands[1], Type::U32),
                          threads, operation, read(operands.back(), Type::Pred)));
        return;
    }
    expect_operands(instruction, 1, 2);
    const std::string id = read(operands[0], Type::U32);
    const std::string threads = operands.size() == 2 ? read(operands[1], Type::U32) : "0";
    if (instruction.has("arrive"))
        line("    t->block->runtime->arrive(t, {}, {});", id, threads);
    else
        line("    t->block->runtime->barrier(t, {}, {}, SC_BARRIER_SYNC, 0);", id, threads);
}

void FunctionEmitter::emit_sleep(const Instruction& instruction) {
    expect_operands(instruction, 1, 1);
    out_.waits = true;
    line("    t->block->runtime->yield(t);");
}

// shfl.sync.mode.b32 d[|p], a, b, c, membermask
void FunctionEmitter::emit_shuffle(const Instruction& instruction) {
    allow(instruction, "sync up down bfly idx");
    if (!instruction.has("sync")) refuse(instruction);
    expect_operands(instruction, 5, 5);
    out_.waits = true;
    const int mode = instruction.has("up")     ? 0
                     : instruction.has("down") ? 1
                     : instruction.has("bfly") ? 2
                                               : 3;
    const auto& operands = instruction.operands;
    line("    {{ _Bool inside; const u32 value = sc_shuffle(t, {}, {}, {}, {}, {}, &inside);", mode,
         read(operands[1], Type::B32), read(operands[2], Type::U32), read(operands[3], Type::U32),
         read(operands[4], Type::U32));
    const Operand& target = operands[0];
    write(target.kind == Operand::Kind::Pair ? target.parts[0] : target, Type::B32, "value");
    if (target.kind == Operand::Kind::Pair) write(target.parts[1], Type::Pred, "inside");
    line("    }}");
}

// vote.sync.{all any uni ballot} d, {!}p, membermask. The forms without a mask vote among the converged
// threads.
void FunctionEmitter::emit_vote(const Instruction& instruction) {
    allow(instruction, "sync all any uni ballot");
    const bool sync = instruction.has("sync");
    expect_operands(instruction, sync ? 3 : 2, sync ? 3 : 2);
    out_.waits = true;
    const auto& operands = instruction.operands;
    const std::string mask = sync ? read(operands[2], Type::U32) : "t->block->runtime->converge(t)";
    line("    {{ const u32 mask = {};", mask);
    line("    const u32 ballot = t->block->runtime->warp(t, SC_WARP_BALLOT, mask, {}, 0);",
         read(operands[1], Type::Pred));
    // The ballot of the negation holds the members that said no; lanes outside the mask are in neither.
    if (instruction.has("ballot")) {
        write(operands[0], Type::B32, "ballot");
    } else if (instruction.has("any")) {
        write(operands[0], Type::Pred, "ballot != 0");
    } else {
        line("    const u32 members = t->block->runtime->warp(t, SC_WARP_BALLOT, mask, 1, 0);");
        write(operands[0], Type::Pred,
              instruction.has("all") ? "ballot == members" : "ballot == members || ballot == 0");
    }
    line("    }}");
}

// match.any.sync d, a, mask; match.all.sync d[|p], a, mask
void FunctionEmitter::emit_match(const Instruction& instruction) {
    allow(instruction, "any all sync");
    expect_operands(instruction, 3, 3);
    out_.waits = true;
    const auto& operands = instruction.operands;
    line(
        "    {{ const u32 mask = {}; const u32 equal = t->block->runtime->warp(t, SC_WARP_MATCH, mask, {}, "
        "0);",
        read(operands[2], Type::U32), read(operands[1], instruction.type()));
    const Operand& target = operands[0];
    const Operand& value = target.kind == Operand::Kind::Pair ? target.parts[0] : target;
    if (instruction.has("any")) {
        write(value, Type::B32, "equal");
    } else {
        line("    const _Bool all = equal == mask;");
        write(value, Type::B32, "all ? mask : 0");
        if (target.kind == Operand::Kind::Pair) write(target.parts[1], Type::Pred, "all");
    }
    line("    }}");
}

void FunctionEmitter::emit_active_mask(const Instruction& instruction) {
    expect_operands(instruction, 1, 1);
    out_.waits = true;
    write(instruction.operands[0], Type::B32, "t->block->runtime->converge(t)");
}

// redux.sync.op.type d, a, membermask
void FunctionEmitter::emit_reduce(const Instruction& instruction) {
    allow(instruction, "sync add min max and or xor");
    expect_operands(instruction, 3, 3);
    out_.waits = true;
    const Type type = instruction.type();
    const bool arithmetic = instruction.has("add") || instruction.has("min") || instruction.has("max");
    if (!contains(arithmetic ? types_of(Type::U32, Type::S32) : types_of(Type::B32), type))
        refuse(instruction);
    const std::string_view sign = type == Type::S32 ? "S32" : "U32";
    const std::string operation = instruction.has("add")   ? "ADD"
                                  : instruction.has("min") ? fmt::format("MIN_{}", sign)
                                  : instruction.has("max") ? fmt::format("MAX_{}", sign)
                                  : instruction.has("and") ? "AND"
                                  : instruction.has("or")  ? "OR"
                                                           : "XOR";
    write(instruction.operands[0], type,
          fmt::format("t->block->runtime->warp(t, SC_WARP_{}, {}, {}, 0)", operation,
                      read(instruction.operands[2], Type::U32), read(instruction.operands[1], Type::U32)));
}

// elect.sync d|p, membermask: the lowest lane of those that are there
void FunctionEmitter::emit_elect(const Instruction& instruction) {
    allow(instruction, "sync");
    expect_operands(instruction, 2, 2);
    const Operand& target = instruction.operands[0];
    if (target.kind != Operand::Kind::Pair) refuse(instruction);
    out_.waits = true;
    line("    {{ const u32 leader = __builtin_ctz(t->block->runtime->warp(t, SC_WARP_BALLOT, {}, 1, 0));",
         read(instruction.operands[1], Type::U32));
    write(target.parts[0], Type::B32, "leader");
    write(target.parts[1], Type::Pred, "leader == t->lane");
    line("    }}");
}

}  // namespace simcuda::ptx
