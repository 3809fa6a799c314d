// Barriers and warp-synchronous instructions: what makes a thread wait for others.
#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {

// Returns to whoever runs the block's threads, and goes on behind that when called with the stop's number.
void FunctionEmitter::stop(std::string_view where) {
    const std::vector<int> live = liveness_->around(position_);
    kept_.insert(live.begin(), live.end());
    const auto for_all = [&](std::string_view format) {
        for (const int reg : live) line(format, function_.registers[static_cast<std::size_t>(reg)].c_name);
        if (carries_) line(format, "carry");
    };
    for_all("    kept->{0}[i] = {0};");
    line("    return {} | {};\n    case {}:;", where, out_.stops + 1, out_.stops + 1);
    ++out_.stops;
    for_all("    {0} = kept->{0}[i];");
}

std::string FunctionEmitter::wait_in_warp(std::string_view operation, const std::string& mask,
                                          const std::string& value, const std::string& source) {
    out_.waits = true;
    if (!liveness_)
        return fmt::format("t->block->runtime->warp(t, SC_WARP_{}, {}, {}, {})", operation, mask, value,
                           source);
    line("    s->mask[i] = {} | 1u << t->lane; s->value[i] = {}; s->source[i] = {};", mask, value, source);
    stop(fmt::format("SC_AT_WARP | SC_WARP_{} << SC_AT_SHIFT", operation));
    return "s->value[i]";
}

std::string FunctionEmitter::wait_to_converge() {
    out_.waits = true;
    if (!liveness_) return "t->block->runtime->converge(t)";
    stop("SC_AT_JOIN");
    return "s->value[i]";
}

// bar / barrier {.cta} {.sync .arrive .red .warp} {.popc .and .or} {.aligned}
void FunctionEmitter::emit_barrier(const Instruction& instruction) {
    if (instruction.has("cluster")) return emit_cluster_barrier(instruction);
    allow(instruction, "cta sync arrive red warp popc and or aligned");
    out_.waits = true;
    const auto& operands = instruction.operands;
    if (instruction.has("warp")) {
        expect_operands(instruction, 1, 1);
        line("    {};", wait_in_warp("SYNC", read(operands[0], Type::U32), "0"));
        return;
    }
    if (instruction.has("red")) {
        // d, barrier {, threads}, predicate
        expect_operands(instruction, 3, 4);
        out_.needs_stack = true;
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
    if (liveness_) return stop("SC_AT_BARRIER");
    const bool all = operands[0].kind == Operand::Kind::Integer && operands[0].integer == 0 &&
                     operands.size() == 1 && !instruction.has("arrive");
    out_.needs_stack |= !all;
    const std::string id = read(operands[0], Type::U32);
    const std::string threads = operands.size() == 2 ? read(operands[1], Type::U32) : "0";
    if (instruction.has("arrive"))
        line("    t->block->runtime->arrive(t, {}, {});", id, threads);
    else
        line("    t->block->runtime->barrier(t, {}, {}, SC_BARRIER_SYNC, 0);", id, threads);
}

// barrier.cluster.arrive{.release .relaxed}{.aligned}, barrier.cluster.wait{.acquire}{.aligned}
void FunctionEmitter::emit_cluster_barrier(const Instruction& instruction) {
    const bool arrives = instruction.has("arrive");
    allow(instruction, arrives ? "cluster arrive release relaxed aligned" : "cluster wait acquire aligned");
    expect_operands(instruction, 0, 0);
    out_.waits = out_.needs_stack = true;
    line("    t->block->runtime->{}(t);", arrives ? "arrive_in_cluster" : "wait_for_cluster");
}

void FunctionEmitter::emit_sleep(const Instruction& instruction) {
    expect_operands(instruction, 1, 1);
    out_.waits = out_.needs_stack = true;
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
    const std::string source = fmt::format("sc_shuffle_source(t->lane, {}, {}, {}, &inside)", mode,
                                           read(operands[2], Type::U32), read(operands[3], Type::U32));
    line("    {{ _Bool inside; u32 source = {};", source);
    const std::string got =
        wait_in_warp("EXCHANGE", read(operands[4], Type::U32), read(operands[1], Type::B32), "source");
    line("    const u32 value = {};", got);
    if (liveness_) line("    {};", source);  // `inside` once more
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
    const std::string vote = read(operands[1], Type::Pred);
    line("    {{ const u32 mask = {};", sync ? read(operands[2], Type::U32) : wait_to_converge());
    if (instruction.has("ballot"))
        write(operands[0], Type::B32, wait_in_warp("BALLOT", "mask", vote));
    else if (instruction.has("any"))
        write(operands[0], Type::Pred, wait_in_warp("OR", "mask", vote) + " != 0");
    else if (instruction.has("all"))
        write(operands[0], Type::Pred, wait_in_warp("AND", "mask", vote) + " != 0");
    else  // a bit for each answer is left if all gave that
        write(operands[0], Type::Pred,
              wait_in_warp("AND", "mask", fmt::format("{} ? 1 : 2", vote)) + " != 0");
    line("    }}");
}

// match.any.sync d, a, mask; match.all.sync d[|p], a, mask
void FunctionEmitter::emit_match(const Instruction& instruction) {
    allow(instruction, "any all sync");
    expect_operands(instruction, 3, 3);
    out_.waits = true;
    const auto& operands = instruction.operands;
    const std::string matched =
        wait_in_warp("MATCH", read(operands[2], Type::U32), read(operands[1], instruction.type()));
    line("    {{ const u64 matched = {}; const u32 equal = matched, members = matched >> 32;", matched);
    const Operand& target = operands[0];
    const Operand& value = target.kind == Operand::Kind::Pair ? target.parts[0] : target;
    if (instruction.has("any")) {
        write(value, Type::B32, "equal");
    } else {
        line("    const _Bool all = equal == members;");
        write(value, Type::B32, "all ? members : 0");
        if (target.kind == Operand::Kind::Pair) write(target.parts[1], Type::Pred, "all");
    }
    line("    }}");
}

void FunctionEmitter::emit_active_mask(const Instruction& instruction) {
    expect_operands(instruction, 1, 1);
    out_.waits = true;
    write(instruction.operands[0], Type::B32, wait_to_converge());
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
    const std::string total = wait_in_warp(operation, read(instruction.operands[2], Type::U32),
                                           read(instruction.operands[1], Type::U32));
    write(instruction.operands[0], type, total);
}

// elect.sync d|p, membermask: the lowest lane of those that are there
void FunctionEmitter::emit_elect(const Instruction& instruction) {
    allow(instruction, "sync");
    expect_operands(instruction, 2, 2);
    const Operand& target = instruction.operands[0];
    if (target.kind != Operand::Kind::Pair) refuse(instruction);
    out_.waits = true;
    line("    {{ const u32 leader = __builtin_ctz({});",
         wait_in_warp("BALLOT", read(instruction.operands[1], Type::U32), "1"));
    write(target.parts[0], Type::B32, "leader");
    write(target.parts[1], Type::Pred, "leader == t->lane");
    line("    }}");
}

}  // namespace simcuda::ptx
