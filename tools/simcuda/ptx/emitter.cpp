// The skeleton of a translated function, and the list of instructions that have handlers of their own.
#include "tools/simcuda/ptx/emitter.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "tools/simcuda/exec/abi.h"
#include "tools/simcuda/ptx/count.h"
#include "tools/simcuda/ptx/emit_line.h"
#include "tools/simcuda/ptx/shared_order.h"

namespace simcuda::ptx {
namespace {

// Bytes of C stack beyond locals and registers: saved registers, calls into libm and the executor.
constexpr std::uint64_t kFrameReserve = 256;
// Bytes of stack that libm and the executor may take; less than what every thread has beyond its frames.
constexpr std::uint64_t kLeafReserve = 8 << 10;

// What a lane brings to an instruction on matrices: sc_part.
constexpr std::uint64_t kPartBytes = 256;

std::string sanitized(std::string_view name) {
    std::string result;
    for (char c : name) result += c == '%' || c == '.' ? '_' : c;
    return result;
}

// Instructions whose result depends on what other threads do meanwhile: a loop with one in it may be waiting.
bool observes_others(const Instruction& instruction) {
    if (instruction.opcode == "atom" || instruction.opcode == "nanosleep") return true;
    if (instruction.opcode == "mbarrier") return instruction.has("test_wait") || instruction.has("try_wait");
    if (instruction.opcode != "ld") return false;
    return instruction.has("volatile") || instruction.has("relaxed") || instruction.has("acquire") ||
           instruction.has("mmio") || instruction.has("cv");
}

bool is_shared(const Instruction& instruction) {
    return instruction.has("shared") || instruction.has("shared::cta");
}

// Instructions at which threads of a warp take notice of one another, or may: those of a warp together, and
// what old code takes for that.
bool meets_others(const Instruction& instruction) {
    static constexpr std::string_view kTogether[] = {"shfl",     "vote",     "match",    "activemask",
                                                     "redux",    "elect",    "mma",      "wmma",
                                                     "ldmatrix", "stmatrix", "movmatrix"};
    if (std::find(std::begin(kTogether), std::end(kTogether), instruction.opcode) != std::end(kTogether))
        return true;
    if (instruction.opcode == "bar" || instruction.opcode == "barrier") return instruction.has("warp");
    return instruction.has("volatile") && is_shared(instruction);
}

bool writes(const Instruction& instruction) {
    return instruction.opcode == "st" || instruction.opcode == "atom" || instruction.opcode == "red";
}

bool stores_shared(const Instruction& instruction) {
    return writes(instruction) && is_shared(instruction);
}

// Memory that other threads may know.
bool touches_memory(const Instruction& instruction) {
    const bool own = instruction.has("param") || instruction.has("local") || instruction.has("const");
    return !own && (writes(instruction) || instruction.opcode == "ld");
}

bool waits_for_block(const Instruction& instruction) {
    return (instruction.opcode == "bar" || instruction.opcode == "barrier") && !instruction.has("arrive");
}

}  // namespace

FunctionEmitter::Handler FunctionEmitter::find_handler(std::string_view opcode) {
    using E = FunctionEmitter;
    static const std::unordered_map<std::string_view, Handler> handlers = {
        {"ld", &E::emit_load},
        {"ldu", &E::emit_load},
        {"st", &E::emit_store},
        {"atom", &E::emit_atomic},
        {"red", &E::emit_atomic},
        {"mov", &E::emit_move},
        {"cvta", &E::emit_convert_address},
        {"isspacep", &E::emit_is_space},
        {"membar", &E::emit_fence},
        {"fence", &E::emit_fence},
        {"prefetch", &E::emit_hint},
        {"prefetchu", &E::emit_hint},
        {"applypriority", &E::emit_hint},
        {"discard", &E::emit_hint},
        {"createpolicy", &E::emit_hint},
        {"bra", &E::emit_branch},
        {"brx", &E::emit_indexed_branch},
        {"call", &E::emit_call},
        {"ret", &E::emit_return},
        {"exit", &E::emit_exit},
        {"trap", &E::emit_trap},
        {"brkpt", &E::emit_nothing},
        {"pmevent", &E::emit_nothing},
        {"setp", &E::emit_set_predicate},
        {"set", &E::emit_set},
        {"cvt", &E::emit_convert},
        {"bar", &E::emit_barrier},
        {"barrier", &E::emit_barrier},
        {"mapa", &E::emit_map_to_peer},
        {"getctarank", &E::emit_peer_of},
        {"nanosleep", &E::emit_sleep},
        {"shfl", &E::emit_shuffle},
        {"vote", &E::emit_vote},
        {"match", &E::emit_match},
        {"activemask", &E::emit_active_mask},
        {"redux", &E::emit_reduce},
        {"elect", &E::emit_elect},
        {"mma", &E::emit_multiply},
        {"wmma", &E::emit_wmma},
        {"ldmatrix", &E::emit_rows},
        {"stmatrix", &E::emit_rows},
        {"movmatrix", &E::emit_transpose},
        {"griddepcontrol", &E::emit_grid_control},
        {"cp", &E::emit_async_copy},
        {"mbarrier", &E::emit_memory_barrier},
        {"tex", &E::emit_texture},
        {"tld4", &E::emit_gather},
        {"txq", &E::emit_image_query},
        {"suld", &E::emit_surface},
        {"sust", &E::emit_surface},
        {"suq", &E::emit_image_query},
    };
    const auto found = handlers.find(opcode);
    return found == handlers.end() ? nullptr : found->second;
}

void FunctionEmitter::emit_touch(Space space, const std::string& address, std::string_view bytes,
                                 bool write) {
    if (counts_work() && (space == Space::Global || space == Space::Generic))
        line("    sc_touch(t, {}, {}, {});", address, bytes, write ? 1 : 0);
}

std::string FunctionEmitter::c_name(const Function& function) {
    return (function.entry ? "k_" : "f_") + sanitized(function.name);
}

// Results and parameters are passed as host addresses of their bytes.
std::string FunctionEmitter::c_head(const Function& function) {
    std::string head = "static void " + c_name(function) + "(struct sc_thread* t";
    if (!function.entry) {
        for (const Declaration* result : function.results) head += ", u64 " + result->c_name;
        for (const Declaration* parameter : function.parameters) head += ", u64 " + parameter->c_name;
    }
    return head + ")";
}

void FunctionEmitter::refuse(const Instruction& instruction) {
    throw Unsupported(std::string(instruction.text));
}

void FunctionEmitter::expect_operands(const Instruction& instruction, std::size_t least, std::size_t most) {
    if (instruction.operands.size() < least || instruction.operands.size() > most) refuse(instruction);
}

void FunctionEmitter::allow(const Instruction& instruction, std::string_view modifiers) {
    for (std::string_view modifier : instruction.modifiers) {
        std::string_view rest = modifiers;
        bool known = false;
        while (!rest.empty() && !known) {
            const std::size_t end = std::min(rest.find(' '), rest.size());
            known = rest.substr(0, end) == modifier;
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        if (!known) refuse(instruction);
    }
}

void FunctionEmitter::emit_body() {
    find_waiting_loops();
    find_joins();
    for (position_ = 0; position_ < function_.body.size(); ++position_)
        emit_statement(function_.body[position_]);
}

void FunctionEmitter::find_joins() {
    const auto meets = [this](const Instruction& instruction) { return may_meet(instruction); };
    const auto is_one = [&](const Statement& s) { return s.label < 0 && meets(s.instruction); };
    if (runs_in_step()) {
        for (const Statement& statement : function_.body)
            if (statement.label < 0 && touches_memory(statement.instruction))
                in_step_.insert(&statement.instruction);
    } else if (std::any_of(function_.body.begin(), function_.body.end(), is_one)) {
        in_step_ = loads_behind_stores(
            function_, [](const Instruction& i) { return meets_others(i) || waits_for_block(i); },
            [this](const Instruction& i) { return reaches(i, stores_shared, storing_functions_); });
    }
    joins_ = joins_of(function_, [&](const Instruction& i) { return meets(i) || in_step_.contains(&i); });
}

// In code that GCC makes for its OpenMP all threads of a warp do what one of them would (-muniform-simt in
// its manual): each stores what the others do too, in the same place, and must not before the others have
// read what was there; nor may what one reads have changed when another does.
bool FunctionEmitter::runs_in_step() const {
    return module_.find_variable("__nvptx_uni") != nullptr;
}

EmittedFunction FunctionEmitter::emit() {
    try {
        emit_body();
        std::string body;
        body.swap(out_.text);
        out_.text = c_head(function_) + " {\n";
        emit_prologue();
        out_.text += body;
        out_.text += "}\n";
    } catch (const Unsupported& unsupported) {
        out_.unsupported = unsupported.what();
    }
    return std::move(out_);
}

EmittedFunction FunctionEmitter::emit_steps() {
    liveness_.emplace(function_);
    carries_ = std::any_of(function_.body.begin(), function_.body.end(),
                           [](const Statement& statement) { return statement.instruction.has("cc"); });
    emit_body();
    std::string body;
    body.swap(out_.text);
    line("struct {}_kept {{", c_name(function_));
    for (const int index : kept_) {
        const Register& reg = function_.registers[static_cast<std::size_t>(index)];
        line("    {} {}[SC_KEPT];", c_type_of(reg), reg.c_name);
        out_.kept_bytes += exec::SC_KEPT * std::max(1u, bytes_of(reg.type));
    }
    if (carries_) {
        line("    u32 carry[SC_KEPT];");
        out_.kept_bytes += exec::SC_KEPT * sizeof(std::uint32_t);
    }
    line(
        "}};\nINLINE u32 {0}(struct sc_thread* t, struct sc_steps* s, struct {0}_kept* kept, u32 i, u32 at) "
        "{{",
        c_name(function_));
    emit_prologue();
    out_.text += "    switch (at) { case 0:;\n" + body + "    }\n    return SC_ENDED;\n}\n";
    return std::move(out_);
}

std::string FunctionEmitter::c_type_of(const Register& reg) const {
    const unsigned bytes = bytes_of(reg.type);
    const bool real = reg.type == Type::F32 || reg.type == Type::F64 || reg.type == Type::Pred;
    const Type bits = reg.as_float ? (bytes == 4 ? Type::F32 : Type::F64) : bits_type(bytes);
    return std::string(c_type(real ? reg.type : bits));
}

void FunctionEmitter::emit_prologue() {
    line("    const u64 shared = t->block->shared;");
    if (counts_work()) line("    struct sc_own_count own __attribute__((cleanup(sc_end_count))) = {{t, 0}};");
    if (carries_) line("    u32 carry = 0;");
    out_.frame_bytes = kFrameReserve;
    for (const Register& reg : function_.registers) {
        line("    {} {};", c_type_of(reg), reg.c_name);
        out_.frame_bytes += std::max(8u, bytes_of(reg.type));
    }
    for (const Declaration& variable : function_.declarations) {
        if (variable.space == Space::Local) out_.local_bytes += variable.bytes;
        const bool is_parameter = variable.in_register ||
                                  std::find(function_.parameters.begin(), function_.parameters.end(),
                                            &variable) != function_.parameters.end() ||
                                  std::find(function_.results.begin(), function_.results.end(), &variable) !=
                                      function_.results.end();
        if (is_parameter || (variable.space != Space::Local && variable.space != Space::Param)) continue;
        // Alignment beyond 16 would make gcc realign the frame for little: devices ask for it in vectors
        // only.
        line("    u8 {}[{}] __attribute__((aligned({})));", variable.c_name,
             std::max<std::uint64_t>(variable.bytes, 1), std::max<std::uint64_t>(variable.alignment, 16));
        out_.frame_bytes += variable.bytes + 32;
        // Local memory is never zero by luck.
        if (variable.space == Space::Local)
            line("    __builtin_memset({}, 0xcb, {});", variable.c_name, variable.bytes);
    }
    if (out_.has_matrices) out_.frame_bytes += kPartBytes;
    // gcc aligns the frame of a leaf for what it sees the stack pointer used for (its bug 109780), and may
    // have aligned accesses to variables by other registers: this is one for it to see.
    if (out_.local_bytes) {
        line("    u8 aligned[64] __attribute__((aligned(64)));");
        line("    __asm__ volatile(\"\" : : \"m\"(*(sc_64_bytes*)aligned));");
        out_.frame_bytes += 128;
    }
    // Room for this frame, which the compiler may make twice as large, and for what is called beside
    // functions.
    if (!function_.entry)
        line(
            "    if (__builtin_expect((u64)__builtin_frame_address(0) - {} < t->stack_limit, 0)) "
            "t->block->runtime->stack_overflow(t);",
            2 * out_.frame_bytes + kLeafReserve);
    for (const Declaration* parameter : function_.parameters) {
        if (!parameter->in_register) continue;
        Operand target;
        target.kind = Operand::Kind::Register;
        target.reg = parameter->parameter_register;
        write(target, parameter->type, fmt::format("*({}*){}", c_type(parameter->type), parameter->c_name));
    }
}

void FunctionEmitter::emit_statement(const Statement& statement) {
    if (statement.label >= 0) {
        line("{}:;", function_.labels[static_cast<std::size_t>(statement.label)].c_name);
        if (joins_.before[position_]) emit_join();
        return;
    }
    if (joins_.before[position_]) emit_join();
    const Instruction& instruction = statement.instruction;
    current_ = &instruction;
    if (instruction.malformed) refuse(instruction);
    if (counts_work()) line("    ++own.operations;");
    if (in_step_.contains(&instruction)) emit_join();
    const bool predicated = instruction.predicate >= 0;
    if (predicated) {
        const std::string& name = function_.registers[static_cast<std::size_t>(instruction.predicate)].c_name;
        line("    if ({}{}) {{", instruction.predicate_negated ? "!" : "", name);
    }
    if (meets_others(instruction)) emit_site();
    if (const Handler handler = find_handler(instruction.opcode))
        (this->*handler)(instruction);
    else if (const Rule* rule = find_rule(instruction))
        emit_rule(*rule, instruction);
    else
        refuse(instruction);
    if (predicated) line("    }}");
}

void FunctionEmitter::emit_join() {
    emit_site();
    line("    {};", wait_to_converge());
}

void FunctionEmitter::emit_rule(const Rule& rule, const Instruction& instruction) {
    const Type first = instruction.types[0];
    const Type second = instruction.types.size() > 1 ? instruction.types[1] : first;
    const auto type_for = [&](char letter) {
        switch (letter) {
            case 't':
                return first;
            case 's':
                return second;
            case 'w':
                return widened(first);
            case 'b':
                return bits_type(bytes_of(first));
            case 'i':
                return Type::S32;
            case 'l':
                return Type::U64;
            case 'p':
                return Type::Pred;
            default:
                return Type::U32;
        }
    };
    const bool flush = rule.flags & kFlushes && instruction.has("ftz");
    const auto flushed = [&](const std::string& value, Type type) {
        if (!flush || !is_float(type) || type == Type::F64) return value;
        return fmt::format("sc_ftz_{}({})", name_of(type), value);
    };
    std::string rounding;
    if (rule.flags & kRounds)
        for (std::string_view mode : {"rz", "rm", "rp"})
            if (instruction.has(mode)) rounding = fmt::format("_{}", mode);
    if (!rounding.empty() && first != Type::F32 && first != Type::F64) refuse(instruction);
    std::string code;
    for (std::size_t i = 0; i < rule.code.size(); ++i) {
        if (rule.code[i] != '$') {
            code += rule.code[i];
            continue;
        }
        const char what = rule.code[++i];
        switch (what) {
            case 't':
                code += name_of(first);
                break;
            case 's':
                code += name_of(second);
                break;
            case 'c':
                code += c_type(first);
                break;
            case 'w':
                code += c_type(widened(first));
                break;
            case 'r':
                code += rounding;
                break;
            default: {
                const auto index = static_cast<std::size_t>(what - '0');
                const Type type = type_for(rule.signature[1 + index]);
                code += flushed(read(instruction.operands[index], type), type);
            }
        }
    }
    const Type result = type_for(rule.signature[0]);
    code = flushed(code, result);
    if (rule.flags & kSaturates && instruction.has("sat"))
        code = fmt::format("sc_sat_{}({})", name_of(result), code);
    carries_ |= rule.code.find("carry") != std::string_view::npos;
    write(instruction.operands[0], result, code);
}

// By itself or in what it calls.
bool FunctionEmitter::reaches(const Instruction& instruction, Test test, Verdicts& verdicts) {
    if (test(instruction)) return true;
    if (instruction.opcode != "call") return false;
    for (const Operand& operand : instruction.operands) {
        if (operand.kind == Operand::Kind::Register) return true;  // whoever that is
        if (operand.kind != Operand::Kind::Name) continue;
        const Function* callee = module_.find_function(operand.name);
        if (!callee || !callee->defined) return false;
        const bool first = verdicts.emplace(callee, false).second;
        if (first)
            for (const Statement& statement : callee->body)
                if (statement.label < 0 && reaches(statement.instruction, test, verdicts))
                    verdicts[callee] = true;
        return verdicts[callee];
    }
    return false;
}

bool FunctionEmitter::may_meet(const Instruction& instruction) {
    const bool called = instruction.opcode == "call";
    if (called && runs_in_step()) return true;
    if (called && !module_meets_) {
        module_meets_ = false;
        for (const auto& function : module_.functions)
            for (const Statement& statement : function->body)
                if (!function->entry && statement.label < 0 && meets_others(statement.instruction))
                    module_meets_ = true;
    }
    return (!called || *module_meets_) && reaches(instruction, meets_others, meeting_functions_);
}

// Says where in the kernel the thread is, for the executor to tell who is ahead of whom: further inside, then
// earlier in the text.
void FunctionEmitter::emit_site() {
    const std::uint64_t depth = std::min(joins_.depth[position_], 0xffffu);
    const std::uint64_t site = depth << 32 | (0xffffffffu - first_site_ - position_);
    if (liveness_)
        line("    s->site[i] = {:#x}ul;", site);
    else
        line("    t->site = t->calls + {:#x}ul;", site);
}

// A loop is what lies between a label and a branch back to it. One that looks at what others may change could
// go round until they have; it must let them run. A fence makes a plain load such a look.
void FunctionEmitter::find_waiting_loops() {
    std::vector<std::size_t> label_at(function_.labels.size(), SIZE_MAX);
    for (std::size_t i = 0; i < function_.body.size(); ++i)
        if (function_.body[i].label >= 0) label_at[static_cast<std::size_t>(function_.body[i].label)] = i;
    std::vector<std::size_t> observed{0};  // running count of observing instructions
    std::vector<std::size_t> loaded{0}, fenced{0};
    for (const Statement& statement : function_.body) {
        const std::string_view opcode = statement.label < 0 ? statement.instruction.opcode : "";
        observed.push_back(
            observed.back() +
            (statement.label < 0 && reaches(statement.instruction, observes_others, observing_functions_)));
        loaded.push_back(loaded.back() + (opcode == "ld"));
        fenced.push_back(fenced.back() + (opcode == "membar" || opcode == "fence"));
    }
    for (std::size_t i = 0; i < function_.body.size(); ++i) {
        const Statement& statement = function_.body[i];
        if (statement.label >= 0 || statement.instruction.opcode != "bra" ||
            statement.instruction.operands.empty())
            continue;
        const int label = statement.instruction.operands[0].label;
        if (label < 0) continue;
        const std::size_t target = label_at[static_cast<std::size_t>(label)];
        if (target > i) continue;
        const bool looks = loaded[i] > loaded[target] && fenced[i] > fenced[target];
        if (observed[i] > observed[target] || looks) waiting_branches_.insert(i);
    }
}

}  // namespace simcuda::ptx
