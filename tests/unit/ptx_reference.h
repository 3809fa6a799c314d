// Kernels of a subset of PTX as values: what they look like as text, and what each thread of a small grid
// does. Written from the PTX ISA, without the code that it is held against.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lms::reference {

enum class Op : std::uint8_t {
    Mov,
    Cvta,  // to global
    Add,
    Sub,
    MulLo,
    MulHi,
    MulWide,
    MadLo,
    MadWide,
    Div,
    Rem,
    Shl,
    Shr,
    And,
    Or,
    Xor,
    Not,
    Neg,
    Abs,
    Min,
    Max,
    Cvt,
    Selp,
    Setp,
    SetpAnd,  // and a third operand, a predicate
    SetpOr,
    LoadParam,  // from `offset` of the parameter block
    Load,
    Store,
    Branch,
    Return,
    Label,
};

enum class Compare : std::uint8_t { Eq, Ne, Lt, Le, Gt, Ge };

struct Type {
    unsigned bits;  // 1: a predicate
    bool is_signed;
};

// %p, %rs, %r or %rd, by its bits.
struct Register {
    unsigned bits = 0;  // 0: none
    unsigned number = 0;
};

enum class Special : std::uint8_t { Tid, Ctaid, Ntid, Nctaid, Lane };

struct Operand {
    Register reg{};
    std::int64_t immediate = 0;  // where there is no register
    std::optional<Special> special{};
    unsigned axis = 0;
    bool negated = false;  // of a predicate
};

struct Instruction {
    Op op;
    Type type{32, true};
    Type to{32, true};  // Cvt
    Compare compare{};
    std::optional<Operand> guard{};
    Register result{};
    std::array<Operand, 3> from{};
    std::int64_t offset = 0;  // bytes, of loads and stores
    unsigned label = 0;       // of Label and Branch
    unsigned pointer = 0;     // of Load and Store: the parameter that leads there
};

// Parameters: pointers, numbers of 32 bits and numbers of 64 bits, in that order.
inline constexpr unsigned kPointers = 6, kNarrow = 4, kWide = 2;

struct Kernel {
    std::vector<Instruction> code;

    // A module with this kernel, "k".
    std::string text() const;
};

struct Launch {
    std::array<std::uint32_t, 3> blocks{1, 1, 1}, threads{1, 1, 1};
    std::array<std::uint64_t, kPointers> pointers{};
    std::array<std::uint32_t, kNarrow> narrow{};
    std::array<std::uint64_t, kWide> wide{};

    std::vector<unsigned char> parameters() const;
};

struct Access {
    const Instruction* by;
    std::uint64_t address, bytes;
    bool stored;
};

// Runs every thread, each for so many steps at most. What memory and registers hold at first is made up.
// The steps that were done.
std::uint64_t run(const Kernel& kernel, const Launch& launch, std::uint64_t seed, unsigned most_steps,
                  const std::function<void(const Access&)>& visit);

// The same kernel and launch for the same seed.
Kernel random_kernel(std::uint64_t seed);
Launch random_launch(std::uint64_t seed);

// Pseudo-random numbers (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    unsigned below(unsigned count) { return static_cast<unsigned>(next() % count); }
    bool chance(unsigned percent) { return below(100) < percent; }
    template <typename T, std::size_t N>
    T one_of(const T (&all)[N]) {
        return all[below(N)];
    }

  private:
    std::uint64_t state_;
};

}  // namespace lms::reference
