// Random kernels and launches: what compilers emit, and what they would not.
#include <algorithm>
#include <utility>

#include "tests/unit/ptx_reference.h"

namespace lms::reference {

namespace {

constexpr unsigned kVariables = 8;  // of 16, 32 and 64 bits, each
constexpr unsigned kFirstPointer = 10;
constexpr unsigned kScratch = 24;  // registers that one statement uses
constexpr unsigned kUnused = 30;
constexpr Type kTypes[] = {{32, true}, {32, false}, {32, true}, {32, false},
                           {64, true}, {64, false}, {16, true}, {16, false}};
constexpr std::int64_t kNumbers[] = {0,   1,   2,   3,    4,  7,  8,  15, 16, 31,  32,  63,
                                     100, 255, 256, 1000, -1, -2, -3, -4, -8, -16, -100};
constexpr std::int64_t kEdges[] = {0x7fff,     0x8000,      0xffff,      0x10000,   0x7fffffff,   0x80000000,
                                   0xffffffff, -0x7fffffff, 0x100000000, INT64_MAX, INT64_MIN + 1};

Operand of(Register reg) {
    return {reg};
}
Operand of(std::int64_t number) {
    return {{}, number};
}

class Generator {
  public:
    explicit Generator(std::uint64_t seed) : random_(seed) {
        wild_ = random_.chance(25);
        calm_ = random_.chance(60);
    }

    Kernel kernel() {
        prologue();
        statements(3, 4 + random_.below(10));
        for (unsigned i = 0; i < 1 + random_.below(2); ++i) access();
        // What is jumped to from anywhere.
        for (std::size_t i = 0; i < wild_labels_; ++i) {
            const std::size_t at = random_.below(static_cast<unsigned>(kernel_.code.size() + 1));
            kernel_.code.insert(kernel_.code.begin() + static_cast<std::ptrdiff_t>(at),
                                label(1000 + static_cast<unsigned>(i)));
        }
        return std::move(kernel_);
    }

  private:
    static Instruction label(unsigned number) {
        Instruction result{Op::Label};
        result.label = number;
        return result;
    }

    Instruction& emit(Op op, Type type, Register result, Operand a = {}, Operand b = {}, Operand c = {}) {
        Instruction instruction{op, type};
        instruction.result = result;
        instruction.from = {a, b, c};
        kernel_.code.push_back(instruction);
        return kernel_.code.back();
    }
    void convert(Type to, Type from, Register result, Register source) {
        emit(Op::Cvt, from, result, of(source)).to = to;
    }
    void branch(unsigned to, std::optional<Operand> guard) {
        Instruction& jump = emit(Op::Branch, {}, {});
        jump.label = to;
        jump.guard = guard;
    }

    // Often the same ones.
    Register variable(unsigned bits) {
        return {bits, random_.below(random_.chance(50) ? kVariables / 2 : kVariables)};
    }
    Register fresh(unsigned bits) { return {bits, kScratch + (next_++ % 6)}; }
    Operand predicate() {
        Operand result = of(Register{1, random_.below(6)});
        result.negated = random_.chance(30);
        return result;
    }
    // A value of which nothing is known says nothing of the rest.
    bool may_be_any() { return random_.chance(calm_ ? 15 : 100); }
    std::int64_t number() {
        return random_.chance(calm_ ? 3 : 12) ? random_.one_of(kEdges) : random_.one_of(kNumbers);
    }
    // As its type may write it.
    std::int64_t number(unsigned bits) {
        const std::int64_t all = number();
        if (bits == 64 || (all >= -(std::int64_t{1} << (bits - 1)) && all < std::int64_t{1} << bits))
            return all;
        return all & ((std::int64_t{1} << bits) - 1);
    }
    Operand source(unsigned bits) { return random_.chance(35) ? of(number(bits)) : of(variable(bits)); }
    Type type() { return random_.one_of(kTypes); }
    Type type_of(unsigned bits) { return {bits, random_.chance(50)}; }

    void parameter(Type type, Register result, unsigned offset) {
        emit(Op::LoadParam, type, result).offset = offset;
    }
    void narrow_parameter(Register result) {
        parameter(type_of(result.bits), result, 8 * kPointers + 4 * random_.below(kNarrow));
    }
    void wide_parameter(Register result) {
        parameter(type_of(64), result, 8 * kPointers + 4 * kNarrow + 8 * random_.below(kWide));
    }

    void special(Register result) {
        constexpr Special kAll[] = {Special::Tid,  Special::Tid,    Special::Ctaid,
                                    Special::Ntid, Special::Nctaid, Special::Lane};
        Operand number;
        number.special = random_.one_of(kAll);
        number.axis = random_.below(3) * random_.below(2);
        emit(Op::Mov, {32, false}, result, number);
    }

    void prologue() {
        for (unsigned i = 0; i < kPointers; ++i) {
            const Register generic{64, kFirstPointer + kPointers + i};
            parameter({64, false}, generic, 8 * i);
            emit(Op::Cvta, {64, false}, {64, kFirstPointer + i}, of(generic));
        }
        for (unsigned i = 0; i < kVariables; ++i) {
            const unsigned what = random_.below(calm_ ? 3 : 4);
            if (what == 0) emit(Op::Mov, {32, true}, {32, i}, of(number(32)));
            if (what == 1) narrow_parameter({32, i});
            if (what == 2) special({32, i});
            if (random_.chance(70)) emit(Op::Mov, {64, true}, {64, i}, of(number()));
            if (random_.chance(50)) emit(Op::Mov, {16, true}, {16, i}, of(number() & 0x7fff));
        }
        Operand block, threads, thread;
        block.special = Special::Ctaid;
        threads.special = Special::Ntid;
        thread.special = Special::Tid;
        const Register a{32, kScratch}, b{32, kScratch + 1}, c{32, kScratch + 2};
        emit(Op::Mov, {32, true}, a, block);
        emit(Op::Mov, {32, true}, b, threads);
        emit(Op::Mov, {32, true}, c, thread);
        emit(Op::MadLo, {32, true}, {32, 0}, of(a), of(b), of(c));
    }

    // ------------------------------------------------------------ statements

    void statements(unsigned depth, unsigned count) {
        for (unsigned i = 0; i < count; ++i) statement(depth);
    }

    void statement(unsigned depth) {
        const unsigned what = random_.below(100);
        if (what < 40) return computation();
        if (what < 55) return access();
        if (what < 62) return comparison({1, random_.below(6)});
        if (what < 66) return predicates();
        if (what < 69 && wild_) return jump();
        if (what < 71) return leave();
        if (what < 75) {
            const Register moved = variable(random_.chance(70) ? 32 : 64);
            emit(Op::Add, {moved.bits, true}, moved, of(moved), of(random_.one_of(kNumbers)));
            return;
        }
        if (depth == 0) return computation();
        if (what < 84) return branches(depth - 1);
        loop(depth - 1);
    }

    void maybe_guarded(std::size_t first) {
        if (!random_.chance(12)) return;
        const Operand guard = predicate();
        for (std::size_t i = first; i < kernel_.code.size(); ++i) kernel_.code[i].guard = guard;
    }

    void computation() {
        const std::size_t first = kernel_.code.size();
        const Type t = type();
        const Register result = variable(t.bits);
        constexpr Op kOps[] = {Op::Add, Op::Add, Op::Sub, Op::MulLo, Op::MadLo, Op::And, Op::Or,
                               Op::Xor, Op::Not, Op::Neg, Op::Abs,   Op::Min,   Op::Max, Op::Min,
                               Op::Rem, Op::Div, Op::Shl, Op::Shr,   Op::MulHi, Op::Mov};
        const unsigned what = random_.below(15);
        if (what == 14) {
            division(variable(random_.chance(75) ? 32 : random_.chance(50) ? 64 : 16));
        } else if (what == 12) {
            rest(variable(32));
        } else if (what == 13) {
            choice(variable(32));
        } else if (what == 0) {
            emit(Op::Selp, t, result, source(t.bits), source(t.bits), of(Register{1, random_.below(6)}));
        } else if (what == 1) {
            const Type from{t.bits == 16 ? 16u : t.bits / 2, random_.chance(50)};
            if (t.bits == 16) return;
            if (random_.chance(50))
                emit(Op::MulWide, from, result, of(variable(from.bits)), source(from.bits));
            else
                emit(Op::MadWide, from, result, of(variable(from.bits)), source(from.bits), source(t.bits));
        } else if (what < 4) {
            conversion(result);
        } else if (what == 4) {
            if (t.bits == 32) special(result);
            if (t.bits == 32 && random_.chance(50)) narrow_parameter(result);
            if (t.bits == 64) wide_parameter(result);
        } else if (what == 5 && may_be_any()) {
            const Register address{64, kFirstPointer + random_.below(kPointers)};
            emit(Op::Load, t, result, of(address)).pointer = address.number - kFirstPointer;
        } else {
            const Op op = random_.one_of(kOps);
            const Register x = random_.chance(40) ? result : variable(t.bits);
            if (op == Op::Shl || op == Op::Shr) {
                emit(op, t, result, of(x),
                     random_.chance(85) ? of(std::int64_t{random_.below(random_.chance(90) ? t.bits : 70)})
                                        : of(variable(32)));
            } else if ((op == Op::Rem || op == Op::Div || op == Op::And) && random_.chance(80)) {
                constexpr std::int64_t kBy[] = {1, 2, 3, 4, 7, 8, 15, 16, 31, 100, 255, -4, -8, -16};
                emit(op, t, result, of(x), of(random_.one_of(kBy)));
            } else {
                // These know signed numbers alone.
                const Type own{t.bits, t.is_signed || op == Op::Abs || op == Op::Neg};
                emit(op, own, result, of(x), source(t.bits), source(t.bits));
            }
        }
        maybe_guarded(first);
    }

    // x - (x & -2^k), as LLVM writes x % 2^k; and nearly so.
    void rest(Register result) {
        const unsigned bits = 1 + random_.below(10);
        const Register x = variable(32), masked = fresh(32);
        Register sum = x;
        if (random_.chance(60)) {
            const Register sign = fresh(32), more = fresh(32);
            emit(Op::Shr, {32, true}, sign, of(x), of(std::int64_t{31}));
            emit(Op::Shr, {32, false}, more, of(sign),
                 of(std::int64_t{random_.chance(80) ? 32 - bits : random_.below(32)}));
            emit(Op::Add, {32, true}, sum = fresh(32), of(x), of(random_.chance(90) ? more : variable(32)));
        }
        const std::int64_t mask = -(std::int64_t{1} << bits);
        emit(Op::And, {32, false}, masked, of(sum),
             of(random_.chance(60) ? mask : mask & ((std::int64_t{1} << random_.below(32)) - 1)));
        emit(Op::Sub, {32, true}, result, of(random_.chance(90) ? x : variable(32)), of(masked));
    }

    // x - x / m * m, divided or multiplied by a rounded 2^n / m and shifted; and nearly so.
    void division(Register result) {
        const unsigned bits = result.bits;
        const Register x = variable(bits), quotient = fresh(bits), product = fresh(bits);
        constexpr std::int64_t kBy[] = {2, 3, 4, 5, 7, 8, 10, 15, 16, 31, 100};
        const std::int64_t m = random_.one_of(kBy);
        const Operand by = random_.chance(30) ? of(variable(bits)) : of(m);
        Register last = quotient;
        if (random_.chance(40) || bits == 64) {
            emit(Op::Div, type_of(bits), quotient, of(x), by);
        } else {
            const bool high = random_.chance(50);
            const unsigned shift = high ? random_.below(6) : 4 + random_.below(bits - 4);
            const unsigned power = shift + (high ? bits : 0);
            const std::int64_t wrong = random_.chance(20) ? std::int64_t{random_.below(3)} - 1 : 0;
            const std::int64_t factor = ((std::int64_t{1} << power) + m - 1) / m + wrong;
            emit(high ? Op::MulHi : Op::MulLo, {bits, random_.chance(15)}, quotient, of(x),
                 of(factor & ((std::int64_t{1} << bits) - 1)));
            emit(Op::Shr, {bits, random_.chance(15)}, last = fresh(bits), of(quotient),
                 random_.chance(15) ? of(variable(32)) : of(std::int64_t{shift}));
        }
        if (random_.chance(60)) {
            emit(Op::MulLo, type_of(bits), product, of(last), by);
            emit(Op::Sub, type_of(bits), result, of(random_.chance(95) ? x : variable(bits)), of(product));
        } else {
            emit(Op::MadLo, type_of(bits), result, of(last), of(-m), of(x));
        }
    }

    // One of two numbers, by a comparison of what they were computed from.
    void choice(Register result) {
        const Register x = variable(32), other = fresh(32);
        emit(random_.chance(50) ? Op::Add : Op::Sub, {32, true}, other, of(x), source(32));
        const Operand which = of(Register{1, random_.below(6)});
        emit(Op::Setp, type_of(32), which.reg, of(x), source(32)).compare =
            static_cast<Compare>(random_.below(6));
        const bool first = random_.chance(50);
        emit(Op::Selp, {32, false}, result, of(first ? x : other), of(first ? other : x), which);
    }

    // Also from and to registers that are wider than the types.
    void conversion(Register result) {
        constexpr unsigned kBits[] = {16, 32, 64};
        const Register from = variable(random_.one_of(kBits));
        constexpr unsigned kSmall[] = {8, 16, 32, 64};
        Type to = type_of(result.bits), by = type_of(from.bits);
        if (random_.chance(40)) to.bits = random_.one_of(kBits);
        if (random_.chance(40)) by.bits = random_.one_of(kSmall);
        if (to.bits > result.bits) to.bits = result.bits;
        if (by.bits > from.bits) by.bits = from.bits;
        convert(to, by, result, from);
    }

    void comparison(Register result) {
        const Type t = type();
        const Compare compare = static_cast<Compare>(random_.below(6));
        const unsigned what = random_.below(10);
        const Op op = what < 7 ? Op::Setp : what < 9 ? Op::SetpAnd : Op::SetpOr;
        emit(op, t, result, of(variable(t.bits)), source(t.bits), op == Op::Setp ? Operand{} : predicate())
            .compare = compare;
        if (random_.chance(10)) kernel_.code.back().guard = predicate();
    }

    void predicates() {
        constexpr Op kOps[] = {Op::And, Op::Or, Op::Not, Op::Mov};
        const Op op = random_.one_of(kOps);
        emit(op, {1, false}, {1, random_.below(6)}, predicate(), predicate());
        if (op == Op::Mov || op == Op::Not) kernel_.code.back().from[0].negated = false;
    }

    // By one of the pointers, and a number of 32 or 64 bits times its size.
    void access() {
        const unsigned pointer = random_.below(kPointers);
        const Register base{64, kFirstPointer + pointer};
        Register address = base;
        const unsigned what = random_.below(8);
        const Register scaled = fresh(64), sum = fresh(64);
        const std::int64_t scale = std::int64_t{1} << random_.below(4);
        if (what < 3) {
            emit(Op::MulWide, {32, random_.chance(60)}, scaled, of(variable(32)), of(scale));
        } else if (what == 3) {
            convert({64, random_.chance(50)}, {32, random_.chance(50)}, scaled, variable(32));
        } else if (what == 4) {
            emit(Op::Shl, {64, true}, scaled, of(variable(64)), of(std::int64_t{random_.below(4)}));
        } else if (what == 5) {
            emit(Op::MadWide, {32, random_.chance(50)}, sum, of(variable(32)), of(scale), of(base));
            address = sum;
        } else if (what == 6) {
            emit(Op::MadLo, {64, true}, sum, of(variable(64)), of(scale), of(base));
            address = sum;
        }
        if (what < 5) {
            emit(Op::Add, {64, true}, sum, of(base), of(scaled));
            address = sum;
        }
        const bool stores = random_.chance(40);
        const Type t = type();
        Instruction& last =
            stores
                ? emit(Op::Store, t, {}, of(address), of(variable(t.bits)))
                : emit(Op::Load, t, may_be_any() ? variable(t.bits) : Register{t.bits, kUnused}, of(address));
        last.pointer = pointer;
        constexpr std::int64_t kOffsets[] = {0, 0, 0, 4, 8, -4, -64, 100};
        last.offset = random_.one_of(kOffsets);
        if (random_.chance(25)) last.guard = predicate();
        // Strength reduction.
        if (random_.chance(20))
            emit(Op::Add, {64, true}, base, of(base),
                 random_.chance(70) ? of(std::int64_t{1} << random_.below(8)) : of(variable(64)));
    }

    Operand condition() {
        const Register p{1, random_.below(6)};
        if (random_.chance(85)) comparison(p);
        Operand result = of(p);
        result.negated = random_.chance(40);
        return result;
    }

    void branches(unsigned depth) {
        const unsigned otherwise = labels_++, end = labels_++;
        branch(otherwise, condition());
        statements(depth, 1 + random_.below(3));
        if (random_.chance(50)) {
            branch(end, std::nullopt);
            kernel_.code.push_back(label(otherwise));
            statements(depth, 1 + random_.below(3));
            kernel_.code.push_back(label(end));
        } else {
            kernel_.code.push_back(label(otherwise));
        }
    }

    void jump() {
        const unsigned to = 1000 + random_.below(3);
        wild_labels_ = std::max(wild_labels_, to - 1000 + 1);
        branch(to, random_.chance(80) ? std::optional(condition()) : std::nullopt);
    }

    void leave() { emit(Op::Return, {}, {}).guard = condition(); }

    // ------------------------------------------------------------ loops

    struct Counted {
        Type type;
        Register counter, next;
        bool by_move;  // "add next, counter, 1; mov counter, next"
        Operand by;
    };

    void step(const Counted& loop, bool add, bool move) {
        const Op op = random_.chance(85) ? Op::Add : Op::Sub;
        const std::size_t first = kernel_.code.size();
        if (!loop.by_move) {
            if (add) emit(op, loop.type, loop.counter, of(loop.counter), loop.by);
        } else {
            if (add) emit(op, loop.type, loop.next, of(loop.counter), loop.by);
            if (move) emit(Op::Mov, loop.type, loop.counter, of(loop.next));
        }
        if (random_.chance(8)) maybe_guarded(first);
    }

    void test(const Counted& loop, Operand bound, unsigned to, bool stays) {
        const Register p{1, random_.below(8)};
        Register tested = loop.by_move && random_.chance(50) ? loop.next : loop.counter;
        if (random_.chance(20)) {
            const Register other = fresh(loop.type.bits);
            emit(random_.chance(80) ? Op::Add : Op::Sub, loop.type, other, of(tested),
                 of(random_.one_of(kNumbers)));
            tested = other;
        }
        constexpr Compare kLikely[] = {Compare::Lt, Compare::Ne, Compare::Lt, Compare::Le,
                                       Compare::Gt, Compare::Ge, Compare::Eq};
        Operand left = of(tested), right = bound;
        if (random_.chance(15) && right.reg.bits != 0) std::swap(left, right);
        emit(Op::Setp, {loop.type.bits, random_.chance(80) ? loop.type.is_signed : !loop.type.is_signed}, p,
             left, right)
            .compare = random_.one_of(kLikely);
        if (random_.chance(5)) statement(0);
        Operand guard = of(p);
        guard.negated = random_.chance(80) != stays;
        branch(to, guard);
    }

    template <typename Make>
    void in_some_rounds(Make&& make) {
        const std::optional<unsigned> past = random_.chance(10) ? std::optional(labels_++) : std::nullopt;
        if (past) branch(*past, condition());
        make();
        if (past) kernel_.code.push_back(label(*past));
    }

    void loop(unsigned depth) {
        Counted loop;
        loop.type = random_.chance(15) ? type() : Type{random_.chance(70) ? 32u : 64u, random_.chance(60)};
        loop.counter = variable(loop.type.bits);
        // Sometimes that of the loop around it.
        if (around_.bits == loop.type.bits && random_.chance(20)) loop.counter = around_;
        const Register around = std::exchange(around_, loop.counter);
        loop.next = {loop.type.bits,
                     random_.chance(50) ? variable(16).number : kVariables + random_.below(2)};
        if (loop.next.bits == 64 && loop.next.number >= kFirstPointer) loop.next.number = 0;
        loop.by_move = random_.chance(25) && loop.next.number != loop.counter.number;
        constexpr std::int64_t kSteps[] = {1, 1, 1, 2, 4, -1, -1, -4, 3, 32};
        loop.by = random_.chance(75) ? of(random_.one_of(kSteps)) : of(variable(loop.type.bits));
        const Operand bound = source(loop.type.bits);
        if (random_.chance(70)) emit(Op::Mov, loop.type, loop.counter, source(loop.type.bits));
        const unsigned head = labels_++, end = labels_++;
        kernel_.code.push_back(label(head));
        const bool at_top = random_.chance(40);
        const bool moves_first = random_.chance(10), steps_first = random_.chance(15);
        if (at_top) in_some_rounds([&] { test(loop, bound, end, false); });
        if (moves_first) step(loop, false, true);
        if (steps_first) step(loop, true, false);
        statements(depth, 1 + random_.below(3));
        if (random_.chance(70)) access();
        if (random_.chance(10)) branch(random_.chance(50) ? head : end, condition());
        in_some_rounds([&] { step(loop, !steps_first, !moves_first); });
        if (at_top) {
            branch(head, random_.chance(85) ? std::nullopt : std::optional(condition()));
        } else {
            test(loop, bound, head, true);
        }
        kernel_.code.push_back(label(end));
        around_ = around;
    }

    Random random_;
    Kernel kernel_;
    bool wild_, calm_;
    Register around_{};  // what the loop counts that is being made
    unsigned next_ = 0, labels_ = 0, wild_labels_ = 0;
};

}  // namespace

Kernel random_kernel(std::uint64_t seed) {
    return Generator(seed).kernel();
}

Launch random_launch(std::uint64_t seed) {
    Random random(seed);
    Launch launch;
    constexpr std::uint32_t kSizes[] = {1, 1, 2, 3};
    for (unsigned i = 0; i < 3; ++i) {
        launch.blocks[i] = i == 0 ? random.one_of(kSizes) : 1 + random.below(8) / 7;
        launch.threads[i] = i == 0 ? 1 + random.below(5) : 1 + random.below(8) / 7;
    }
    for (unsigned i = 0; i < kPointers; ++i)
        launch.pointers[i] = (std::uint64_t{1} << 45) + (std::uint64_t{i} << 42);
    const auto number = [&] {
        return static_cast<std::uint64_t>(random.chance(10) ? random.one_of(kEdges)
                                                            : random.one_of(kNumbers));
    };
    for (auto& each : launch.narrow) each = static_cast<std::uint32_t>(number());
    for (auto& each : launch.wide) each = number();
    return launch;
}

}  // namespace lms::reference
