#include "tests/unit/ptx_reference.h"

#include <cstring>
#include <map>

namespace lms::reference {

namespace {

using Wide = __int128;
using UnsignedWide = unsigned __int128;

std::string name_of(Register reg) {
    const char* const file = reg.bits == 1 ? "%p" : reg.bits == 16 ? "%rs" : reg.bits == 32 ? "%r" : "%rd";
    return file + std::to_string(reg.number);
}

std::string name_of(const Operand& operand) {
    constexpr const char* kSpecial[] = {"%tid.", "%ctaid.", "%ntid.", "%nctaid."};
    if (operand.special == Special::Lane) return "%laneid";
    if (operand.special)
        return kSpecial[static_cast<int>(*operand.special)] +
               std::string(1, static_cast<char>('x' + operand.axis));
    if (operand.reg.bits == 0) return std::to_string(operand.immediate);
    return (operand.negated ? "!" : "") + name_of(operand.reg);
}

std::string name_of(Type type, bool as_bits = false) {
    return (as_bits ? "b" : type.is_signed ? "s" : "u") + std::to_string(type.bits);
}

const char* name_of(Compare compare) {
    constexpr const char* kNames[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    return kNames[static_cast<int>(compare)];
}

// The opcode up to its type, and how many operands it has.
struct Form {
    const char* opcode;
    unsigned count;
    bool as_bits = false;
};
Form form_of(Op op) {
    switch (op) {
        case Op::Mov:
            return {"mov", 1, true};
        case Op::Cvta:
            return {"cvta.to.global", 1};
        case Op::Add:
            return {"add", 2};
        case Op::Sub:
            return {"sub", 2};
        case Op::MulLo:
            return {"mul.lo", 2};
        case Op::MulHi:
            return {"mul.hi", 2};
        case Op::MulWide:
            return {"mul.wide", 2};
        case Op::MadLo:
            return {"mad.lo", 3};
        case Op::MadWide:
            return {"mad.wide", 3};
        case Op::Div:
            return {"div", 2};
        case Op::Rem:
            return {"rem", 2};
        case Op::Shl:
            return {"shl", 2, true};
        case Op::Shr:
            return {"shr", 2};
        case Op::And:
            return {"and", 2, true};
        case Op::Or:
            return {"or", 2, true};
        case Op::Xor:
            return {"xor", 2, true};
        case Op::Not:
            return {"not", 1, true};
        case Op::Neg:
            return {"neg", 1};
        case Op::Abs:
            return {"abs", 1};
        case Op::Min:
            return {"min", 2};
        case Op::Max:
            return {"max", 2};
        case Op::Selp:
            return {"selp", 3, true};
        default:
            return {"", 0};
    }
}

std::string place(std::int64_t offset) {
    return offset == 0 ? "" : "+" + std::to_string(offset);
}

std::string text_of(const Instruction& each) {
    const std::string type = name_of(each.type);
    const std::string result = name_of(each.result);
    const std::string a = name_of(each.from[0]);
    switch (each.op) {
        case Op::Label:
            return "$L" + std::to_string(each.label) + ":";
        case Op::Branch:
            return "bra $L" + std::to_string(each.label) + ";";
        case Op::Return:
            return "ret;";
        case Op::LoadParam:
            return "ld.param." + type + " " + result + ", [parameters" + place(each.offset) + "];";
        case Op::Load:
            return "ld.global." + type + " " + result + ", [" + a + place(each.offset) + "];";
        case Op::Store:
            return "st.global." + type + " [" + a + place(each.offset) + "], " + name_of(each.from[1]) + ";";
        case Op::Cvt:
            return "cvt." + name_of(each.to) + "." + type + " " + result + ", " + a + ";";
        case Op::Setp:
        case Op::SetpAnd:
        case Op::SetpOr: {
            const char* const with = each.op == Op::SetpAnd ? ".and" : each.op == Op::SetpOr ? ".or" : "";
            const std::string third = each.op == Op::Setp ? "" : ", " + name_of(each.from[2]);
            return std::string("setp.") + name_of(each.compare) + with + "." + type + " " + result + ", " +
                   a + ", " + name_of(each.from[1]) + third + ";";
        }
        default:
            break;
    }
    const Form form = form_of(each.op);
    std::string text = std::string(form.opcode) + "." +
                       (each.type.bits == 1 ? "pred" : name_of(each.type, form.as_bits)) + " " + result;
    for (unsigned i = 0; i < form.count; ++i) text += ", " + name_of(each.from[i]);
    return text + ";";
}

std::uint64_t cut(unsigned bits, UnsignedWide value) {
    return bits >= 64 ? static_cast<std::uint64_t>(value)
                      : static_cast<std::uint64_t>(value) & ((std::uint64_t{1} << bits) - 1);
}

Wide number(Type type, std::uint64_t bits) {
    const std::uint64_t value = cut(type.bits, bits);
    const bool negative = type.is_signed && (value >> (type.bits - 1)) != 0;
    return negative ? Wide{value} - (Wide{1} << type.bits) : Wide{value};
}

bool holds(Compare compare, Wide a, Wide b) {
    switch (compare) {
        case Compare::Eq:
            return a == b;
        case Compare::Ne:
            return a != b;
        case Compare::Lt:
            return a < b;
        case Compare::Le:
            return a <= b;
        case Compare::Gt:
            return a > b;
        case Compare::Ge:
            break;
    }
    return a >= b;
}

class Thread {
  public:
    Thread(const Kernel& kernel, const Launch& launch, const std::vector<unsigned char>& parameters,
           const std::map<unsigned, std::size_t>& labels, std::array<std::uint32_t, 3> block,
           std::array<std::uint32_t, 3> thread, std::uint64_t seed)
        : kernel_(kernel),
          launch_(launch),
          parameters_(parameters),
          labels_(labels),
          block_(block),
          thread_(thread),
          random_(seed) {
        for (auto& file : files_) {
            for (std::uint64_t& reg : file) reg = some();
        }
    }

    unsigned run(unsigned most_steps, const std::function<void(const Access&)>& visit) {
        unsigned steps = 0;
        for (std::size_t at = 0; at < kernel_.code.size() && steps < most_steps; ++steps) {
            const Instruction& each = kernel_.code[at++];
            if (each.guard && (value(*each.guard) & 1) == 0) continue;
            if (each.op == Op::Return) break;
            if (each.op == Op::Branch) {
                at = labels_.at(each.label);
            } else if (each.op != Op::Label) {
                perform(each, visit);
            }
        }
        return steps;
    }

  private:
    std::uint64_t some() {
        const std::uint64_t value = random_.next();
        switch (value % 4) {
            case 0:
                return value >> 4 & 15;
            case 1:
                return ~(value >> 4 & 15);
            case 2:
                return value >> 40;
            default:
                return value;
        }
    }

    std::uint64_t& reg(Register which) {
        const unsigned file = which.bits == 1 ? 0 : which.bits == 16 ? 1 : which.bits == 32 ? 2 : 3;
        return files_[file][which.number];
    }

    std::uint64_t value(const Operand& operand) {
        if (operand.special) {
            switch (*operand.special) {
                case Special::Tid:
                    return thread_[operand.axis];
                case Special::Ctaid:
                    return block_[operand.axis];
                case Special::Ntid:
                    return launch_.threads[operand.axis];
                case Special::Nctaid:
                    return launch_.blocks[operand.axis];
                case Special::Lane:
                    return (thread_[0] +
                            launch_.threads[0] * (thread_[1] + launch_.threads[1] * thread_[2])) %
                           32;
            }
        }
        if (operand.reg.bits == 0) return static_cast<std::uint64_t>(operand.immediate);
        const std::uint64_t bits = cut(operand.reg.bits, reg(operand.reg));
        return operand.negated ? bits ^ 1 : bits;
    }

    void perform(const Instruction& each, const std::function<void(const Access&)>& visit) {
        const std::uint64_t bytes = each.type.bits / 8;
        if (each.op == Op::Load || each.op == Op::Store) {
            visit({&each, value(each.from[0]) + static_cast<std::uint64_t>(each.offset), bytes,
                   each.op == Op::Store});
            if (each.op == Op::Store) return;
        }
        set(each.result, result_of(each));
    }

    // Integers loaded or converted into a wider register are extended by their own type.
    void set(Register to, std::uint64_t value) { reg(to) = cut(to.bits, value); }

    std::uint64_t result_of(const Instruction& each) {
        const Type type = each.type;
        if (each.op == Op::Load) return static_cast<std::uint64_t>(number(type, some()));
        if (each.op == Op::LoadParam) {
            std::uint64_t bits = 0;
            std::memcpy(&bits, parameters_.data() + each.offset, type.bits / 8);
            return static_cast<std::uint64_t>(number(type, bits));
        }
        const std::uint64_t x = value(each.from[0]);
        const std::uint64_t y = value(each.from[1]);
        const std::uint64_t z = value(each.from[2]);
        const Wide a = number(type, x);
        const Wide b = number(type, y);
        switch (each.op) {
            case Op::Mov:
            case Op::Cvta:
                return x;
            case Op::Add:
                return x + y;
            case Op::Sub:
                return x - y;
            case Op::MulLo:
                return x * y;
            case Op::MulHi:
                // No product of two numbers of 64 bits leaves 128; of unsigned ones, 128 unsigned.
                return static_cast<std::uint64_t>(
                    type.is_signed
                        ? static_cast<UnsignedWide>((a * b) >> type.bits)
                        : (static_cast<UnsignedWide>(a) * static_cast<UnsignedWide>(b)) >> type.bits);
            case Op::MulWide:
                return static_cast<std::uint64_t>(a * b);
            case Op::MadLo:
                return x * y + z;
            case Op::MadWide:
                return static_cast<std::uint64_t>(a * b) + z;
            case Op::Div:
                return b == 0 ? some() : static_cast<std::uint64_t>(a / b);
            case Op::Rem:
                return b == 0 ? some() : static_cast<std::uint64_t>(a % b);
            case Op::Shl:
                return cut(32, y) >= type.bits ? 0 : x << cut(32, y);
            case Op::Shr:
                return static_cast<std::uint64_t>(cut(32, y) >= type.bits ? (a < 0 ? Wide{-1} : Wide{0})
                                                                          : a >> cut(32, y));
            case Op::And:
                return x & y;
            case Op::Or:
                return x | y;
            case Op::Xor:
                return x ^ y;
            case Op::Not:
                return ~x;
            case Op::Neg:
                return 0 - x;
            case Op::Abs:
                return static_cast<std::uint64_t>(a < 0 ? -a : a);
            case Op::Min:
                return static_cast<std::uint64_t>(a < b ? a : b);
            case Op::Max:
                return static_cast<std::uint64_t>(a < b ? b : a);
            case Op::Cvt:
                return static_cast<std::uint64_t>(number(each.to, static_cast<std::uint64_t>(a)));
            case Op::Selp:
                return z & 1 ? x : y;
            case Op::Setp:
                return holds(each.compare, a, b);
            case Op::SetpAnd:
                return holds(each.compare, a, b) && (z & 1);
            case Op::SetpOr:
                return holds(each.compare, a, b) || (z & 1);
            default:
                return 0;
        }
    }

    const Kernel& kernel_;
    const Launch& launch_;
    const std::vector<unsigned char>& parameters_;
    const std::map<unsigned, std::size_t>& labels_;
    std::array<std::uint32_t, 3> block_, thread_;
    Random random_;
    std::array<std::array<std::uint64_t, 32>, 4> files_{};
};

}  // namespace

std::string Kernel::text() const {
    std::string text =
        ".version 8.4\n.target sm_75\n.address_size 64\n.visible .entry k(.param .align 8 .b8 parameters[" +
        std::to_string(Launch().parameters().size()) +
        "])\n{\n.reg .pred %p<32>;\n.reg .b16 %rs<32>;\n.reg .b32 %r<32>;\n.reg .b64 %rd<32>;\n";
    for (const Instruction& each : code) {
        if (each.guard) text += "@" + name_of(*each.guard) + " ";
        text += text_of(each) + "\n";
    }
    return text + "ret;\n}\n";
}

std::vector<unsigned char> Launch::parameters() const {
    std::vector<unsigned char> block(sizeof pointers + sizeof narrow + sizeof wide);
    std::memcpy(block.data(), pointers.data(), sizeof pointers);
    std::memcpy(block.data() + sizeof pointers, narrow.data(), sizeof narrow);
    std::memcpy(block.data() + sizeof pointers + sizeof narrow, wide.data(), sizeof wide);
    return block;
}

std::uint64_t run(const Kernel& kernel, const Launch& launch, std::uint64_t seed, unsigned most_steps,
                  const std::function<void(const Access&)>& visit) {
    const std::vector<unsigned char> parameters = launch.parameters();
    std::map<unsigned, std::size_t> labels;
    for (std::size_t at = 0; at < kernel.code.size(); ++at) {
        if (kernel.code[at].op == Op::Label) labels[kernel.code[at].label] = at;
    }
    const auto count = [](const std::array<std::uint32_t, 3>& size) { return size[0] * size[1] * size[2]; };
    const auto nth = [](const std::array<std::uint32_t, 3>& size, std::uint32_t n) {
        return std::array<std::uint32_t, 3>{n % size[0], n / size[0] % size[1], n / size[0] / size[1]};
    };
    std::uint64_t steps = 0;
    for (std::uint32_t block = 0; block < count(launch.blocks); ++block) {
        for (std::uint32_t thread = 0; thread < count(launch.threads); ++thread) {
            steps += Thread(kernel, launch, parameters, labels, nth(launch.blocks, block),
                            nth(launch.threads, thread), seed + block * 1031 + thread)
                         .run(most_steps, visit);
        }
    }
    return steps;
}

}  // namespace lms::reference
