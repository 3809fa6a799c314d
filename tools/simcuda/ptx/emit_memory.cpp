// Loads, stores, atomics, moves, and conversions between address spaces.
#include "tools/simcuda/ptx/emit_line.h"
#include "tools/simcuda/ptx/lost_writes.h"

namespace simcuda::ptx {
namespace {

// Cache and scope hints change no value here: one process, coherent caches.
constexpr std::string_view kAccessModifiers =
    "global shared shared::cta shared::cluster local const param param::entry param::func weak relaxed "
    "acquire "
    "release volatile mmio cta cluster gpu sys nc ca cg cs lu cv wb wt v2 v4 v8 unified L1::evict_normal "
    "L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::evict_normal L2::evict_first "
    "L2::evict_last L2::cache_hint L2::64B L2::128B L2::256B";

unsigned vector_length(const Instruction& instruction) {
    return instruction.has("v2") ? 2 : instruction.has("v4") ? 4 : instruction.has("v8") ? 8 : 1;
}

// Braces around a single register are no vector.
const Operand& without_braces(const Operand& operand) {
    return operand.kind == Operand::Kind::Vector && operand.parts.size() == 1 ? operand.parts[0] : operand;
}

// Observed by, or observing, other threads while they run: one access of the hardware each, never cached.
bool is_strong(const Instruction& instruction) {
    for (std::string_view modifier : {"volatile", "relaxed", "acquire", "release", "mmio"})
        if (instruction.has(modifier)) return true;
    return false;
}

}  // namespace

Space FunctionEmitter::space_of(const Instruction& instruction) {
    for (std::string_view modifier : instruction.modifiers) {
        if (modifier == "global") return Space::Global;
        if (modifier == "const") return Space::Const;
        if (modifier == "local") return Space::Local;
        if (modifier == "shared" || modifier == "shared::cta") return Space::Shared;
        if (modifier == "shared::cluster") return Space::Cluster;
        if (modifier == "param" || modifier == "param::entry" || modifier == "param::func")
            return Space::Param;
    }
    return instruction.opcode == "ldu" ? Space::Global : Space::Generic;
}

std::string FunctionEmitter::landing(Space space, const std::string& address, bool atomic) {
    if (!writes_may_be_lost() || (space != Space::Global && space != Space::Generic)) return address;
    return fmt::format("sc_landing(t, {}, {:d})", address, atomic);
}

// A strong vector is one access of 8 or 16 bytes, as on the device: programs publish a value and its flag by
// it.
void FunctionEmitter::emit_strong_vector(const Instruction& instruction, const std::string& address,
                                         unsigned count, bool load) {
    const Type type = instruction.type();
    const unsigned bytes = bytes_of(type) * count;
    if (bytes != 4 && bytes != 8 && bytes != 16) refuse(instruction);
    const std::string_view whole = bytes == 4 ? "u32" : bytes == 8 ? "u64" : "sc_16_bytes";
    const Operand& vector = instruction.operands[load ? 0 : 1];
    line("    {{ {} part[{}]; {} whole;", c_type(type), count, whole);
    if (load) {
        line("    whole = *(volatile {}*)({});", whole, address);
        line("    __builtin_memcpy(part, &whole, {});", bytes);
    }
    for (unsigned i = 0; i < count; ++i) {
        if (load)
            write(vector.parts[i], type, fmt::format("part[{}]", i));
        else
            line("    part[{}] = {};", i, observed(vector.parts[i], type));
    }
    if (!load) {
        line("    __builtin_memcpy(&whole, part, {});", bytes);
        line("    *(volatile {}*)({}) = whole;", whole, address);
    }
    line("    }}");
}

void FunctionEmitter::emit_load(const Instruction& instruction) {
    allow(instruction, kAccessModifiers);
    expect_operands(instruction, 2, 3);
    if (instruction.types.size() != 1 || bytes_of(instruction.type()) == 0) refuse(instruction);
    const unsigned count = vector_length(instruction);
    const Operand& target = without_braces(instruction.operands[0]);
    if ((count > 1) != (target.kind == Operand::Kind::Vector) || (count > 1 && target.parts.size() != count))
        refuse(instruction);
    Space space = space_of(instruction);
    const Type type = instruction.type();
    const std::string address = host_address(instruction.operands[1], space);
    emit_touch(space, address, std::to_string(bytes_of(type) * count), false);
    const bool strong = is_strong(instruction) && space != Space::Local && space != Space::Param;
    if (strong && space == Space::Shared && instruction.has("volatile")) {
        line("    {};", wait_to_converge());
    }
    if (count == 1) {
        write(target, type, fmt::format("*({}{}*)({})", strong ? "volatile " : "", c_type(type), address));
    } else if (strong && bytes_of(type) * count <= 16) {
        emit_strong_vector(instruction, address, count, true);
    } else {
        // All elements are read before any is written: the address may be made of their registers.
        line("    {{ const {0}* from = (const {0}*)({1});", c_type(type), address);
        std::string reads;
        for (unsigned i = 0; i < count; ++i) reads += fmt::format("{} e{} = from[{}]", i ? "," : "", i, i);
        line("    const {}{};", c_type(type), reads);
        for (unsigned i = 0; i < count; ++i) write(target.parts[i], type, fmt::format("e{}", i));
        line("    }}");
    }
    if (instruction.has("acquire")) line("    __atomic_thread_fence(__ATOMIC_ACQUIRE);");
}

void FunctionEmitter::emit_store(const Instruction& instruction) {
    if (instruction.has("async")) return emit_async_store(instruction);
    allow(instruction, kAccessModifiers);
    expect_operands(instruction, 2, 3);
    if (instruction.types.size() != 1 || bytes_of(instruction.type()) == 0) refuse(instruction);
    const unsigned count = vector_length(instruction);
    const Operand& value = without_braces(instruction.operands[1]);
    if ((count > 1) != (value.kind == Operand::Kind::Vector) || (count > 1 && value.parts.size() != count))
        refuse(instruction);
    Space space = space_of(instruction);
    const Type type = instruction.type();
    const std::string aim = host_address(instruction.operands[0], space);
    emit_touch(space, aim, std::to_string(bytes_of(type) * count), true);
    const std::string address = landing(space, aim, false);
    const bool strong = is_strong(instruction) && space != Space::Local && space != Space::Param;
    if (strong && space == Space::Shared && instruction.has("volatile")) {
        line("    {};", wait_to_converge());
    }
    if (instruction.has("release")) line("    __atomic_thread_fence(__ATOMIC_RELEASE);");
    if (count == 1) {
        line("    *({}{}*)({}) = {};", strong ? "volatile " : "", c_type(type), address,
             observed(value, type));
    } else if (strong && bytes_of(type) * count <= 16) {
        emit_strong_vector(instruction, address, count, false);
    } else {
        line("    {{ {0}* to = ({0}*)({1});", c_type(type), address);
        for (unsigned i = 0; i < count; ++i) line("    to[{}] = {};", i, observed(value.parts[i], type));
        line("    }}");
    }
}

void FunctionEmitter::emit_atomic(const Instruction& instruction) {
    static constexpr std::string_view kOperations[] = {"add", "min", "max", "inc",  "dec",
                                                       "and", "or",  "xor", "exch", "cas"};
    allow(instruction,
          "add min max inc dec and or xor exch cas relaxed acquire release acq_rel cta cluster gpu sys "
          "global shared "
          "shared::cta shared::cluster noftz L2::cache_hint");
    if (instruction.types.size() != 1) refuse(instruction);
    std::string_view operation;
    for (std::string_view candidate : kOperations)
        if (instruction.has(candidate)) operation = candidate;
    const bool reduction = instruction.opcode == "red";
    const std::size_t first = reduction ? 0 : 1;
    const bool compares = operation == "cas";
    expect_operands(instruction, first + 2 + compares, first + 3 + compares);
    const Type type = instruction.type();
    const bool bitwise =
        operation == "and" || operation == "or" || operation == "xor" || operation == "exch" || compares;
    const bool extreme = operation == "min" || operation == "max";
    const TypeSet allowed = compares  ? types_of(Type::B16, Type::B32, Type::B64)
                            : bitwise ? types_of(Type::B32, Type::B64)
                            : extreme ? types_of(Type::U32, Type::S32, Type::U64, Type::S64)
                            : operation == "inc" || operation == "dec" ? types_of(Type::U32)
                            : operation == "add" ? types_of(Type::U32, Type::S32, Type::U64) | kFloats
                                                 : 0;
    if (!contains(allowed, type)) refuse(instruction);
    Space space = space_of(instruction);
    const std::string aim = host_address(instruction.operands[first], space);
    emit_touch(space, aim, std::to_string(bytes_of(type)), true);
    const std::string address = landing(space, aim, true);
    const bool on_this_thread = space == Space::Shared || space == Space::Cluster;
    std::string call = fmt::format("sc_{}_{}_{}({}, {}", on_this_thread ? "own" : "atom", operation,
                                   name_of(type), address, read(instruction.operands[first + 1], type));
    if (compares) call += ", " + read(instruction.operands[first + 2], type);
    call += ")";
    if (reduction)
        line("    {};", call);
    else
        write(instruction.operands[0], type, call);
}

void FunctionEmitter::emit_move(const Instruction& instruction) {
    allow(instruction, "v2 v4");
    expect_operands(instruction, 2, 2);
    if (instruction.types.size() != 1) refuse(instruction);
    const Operand& to = instruction.operands[0];
    const Operand& from = instruction.operands[1];
    if (const unsigned count = vector_length(instruction); count > 1)
        return emit_move_vector(instruction, count);
    if (from.kind == Operand::Kind::Vector) return emit_pack(instruction);
    if (to.kind == Operand::Kind::Vector) return emit_unpack(instruction);
    write(to, instruction.type(), read(from, instruction.type()));
}

void FunctionEmitter::emit_move_vector(const Instruction& instruction, unsigned count) {
    const Operand& to = instruction.operands[0];
    const Operand& from = instruction.operands[1];
    if (to.kind != Operand::Kind::Vector || to.parts.size() != count || from.kind != Operand::Kind::Vector ||
        from.parts.size() != count)
        refuse(instruction);
    const Type type = instruction.type();
    std::string values;
    for (const Operand& part : from.parts) values += (values.empty() ? "" : ", ") + read(part, type);
    line("    {{ const {} from[] = {{{}}};", c_type(type), values);
    for (unsigned i = 0; i < count; ++i) write(to.parts[i], type, fmt::format("from[{}]", i));
    line("    }}");
}

void FunctionEmitter::emit_pack(const Instruction& instruction) {
    const Type type = instruction.type();
    const std::vector<Operand>& parts = instruction.operands[1].parts;
    const unsigned bytes = bytes_of(type) / static_cast<unsigned>(parts.size());
    const Type element = bits_type(bytes);
    if (element == Type::None || bytes * parts.size() != bytes_of(type)) refuse(instruction);
    std::string value;
    for (std::size_t i = 0; i < parts.size(); ++i)
        value += fmt::format("{}({}){} << {}", i ? " | " : "", c_type(type), read(parts[i], element),
                             i * bytes * 8);
    write(instruction.operands[0], type, value);
}

void FunctionEmitter::emit_unpack(const Instruction& instruction) {
    const Type type = instruction.type();
    const std::vector<Operand>& parts = instruction.operands[0].parts;
    const unsigned bytes = bytes_of(type) / static_cast<unsigned>(parts.size());
    const Type element = bits_type(bytes);
    if (element == Type::None || bytes * parts.size() != bytes_of(type)) refuse(instruction);
    line("    {{ const {} whole = {};", c_type(type), read(instruction.operands[1], type));
    for (std::size_t i = 0; i < parts.size(); ++i)
        write(parts[i], element, fmt::format("whole >> {}", i * bytes * 8));
    line("    }}");
}

void FunctionEmitter::emit_convert_address(const Instruction& instruction) {
    allow(instruction, "to global shared shared::cta shared::cluster local const param param::entry");
    expect_operands(instruction, 2, 2);
    const Space space = space_of(instruction);
    const std::string value = read(instruction.operands[1], instruction.type());
    std::string result = value;
    if (space == Space::Shared && instruction.has("to"))
        result = fmt::format("(u32)({} - (u32)shared)", other_side_text(value));
    else if (space == Space::Cluster && instruction.has("to"))
        result = fmt::format("sc_to_cluster(t, {})", other_side_text(value));
    else if ((space == Space::Local || space == Space::Param) && instruction.has("to"))
        result = other_side_text(value);
    else if (space == Space::Shared || space == Space::Cluster || space == Space::Local ||
             space == Space::Param)
        result = other_side_text(within(space, value));
    write(instruction.operands[0], instruction.type(), result);
}

void FunctionEmitter::emit_is_space(const Instruction& instruction) {
    allow(instruction, "global shared shared::cta shared::cluster local const param param::entry");
    expect_operands(instruction, 2, 2);
    const std::string host = other_side_text(read(instruction.operands[1], Type::U64));
    const std::string in_shared = fmt::format("{} - shared + 0x80000000ul < 0x100000000ul", host);
    const std::string in_cluster = fmt::format("(sc_peer_of(t, {}) < t->block->cluster_size)", host);
    // A fiber's stack lies within 64 MiB above its limit; so does the part of a worker's that a kernel uses.
    const std::string in_local = fmt::format("{} - t->stack_limit < 0x4000000ul", host);
    switch (space_of(instruction)) {
        case Space::Shared:
            return write(instruction.operands[0], Type::Pred, in_shared);
        case Space::Cluster:
            return write(instruction.operands[0], Type::Pred, in_cluster);
        case Space::Local:
            return write(instruction.operands[0], Type::Pred, in_local);
        case Space::Global:
            return write(instruction.operands[0], Type::Pred,
                         fmt::format("!{} && !({})", in_cluster, in_local));
        default:
            refuse(instruction);  // constant variables and parameters have no window of their own
    }
}

// mapa{.shared::cluster}.type d, a, rank: where block `rank` has what lies at `a` here
void FunctionEmitter::emit_map_to_peer(const Instruction& instruction) {
    allow(instruction, "shared::cluster");
    expect_operands(instruction, 3, 3);
    const Type type = instruction.type();
    if (!contains(types_of(Type::U32, Type::U64), type)) refuse(instruction);
    const std::string rank = read(instruction.operands[2], Type::U32);
    const std::string value = read(instruction.operands[1], type);
    write(instruction.operands[0], type,
          space_of(instruction) == Space::Cluster
              ? fmt::format("sc_on_peer({}, {})", value, rank)
              : other_side_text(fmt::format("sc_cluster(t, sc_on_peer(sc_to_cluster(t, {}), {}))",
                                            other_side_text(value), rank)));
}

// getctarank{.shared::cluster}.type d, a: the rank of the block whose shared memory `a` lies in
void FunctionEmitter::emit_peer_of(const Instruction& instruction) {
    allow(instruction, "shared::cluster");
    expect_operands(instruction, 2, 2);
    const Type type = instruction.type();
    if (!contains(types_of(Type::U32, Type::U64), type)) refuse(instruction);
    const std::string value = read(instruction.operands[1], type);
    const std::string host = space_of(instruction) == Space::Cluster ? fmt::format("sc_cluster(t, {})", value)
                                                                     : other_side_text(value);
    write(instruction.operands[0], Type::U32, fmt::format("sc_peer_of(t, {})", host));
}

void FunctionEmitter::emit_fence(const Instruction& instruction) {
    allow(instruction, "cta gl sys sc acq_rel gpu cluster acquire release mbarrier_init");
    // A block's threads share a host thread, so a fence between them only binds the compiler.
    const bool block = instruction.has("cta");
    line("    {};",
         block ? "__atomic_signal_fence(__ATOMIC_SEQ_CST)" : "__atomic_thread_fence(__ATOMIC_SEQ_CST)");
}

// Prefetches and cache policies: no value but the policy's, which only such hints read.
void FunctionEmitter::emit_hint(const Instruction& instruction) {
    if (instruction.opcode == "discard") refuse(instruction);
    if (instruction.opcode == "prefetch" && instruction.has("tensormap")) refuse(instruction);
    if (instruction.opcode == "createpolicy" && !instruction.operands.empty())
        write(instruction.operands[0], Type::B64, "0");
}

}  // namespace simcuda::ptx
