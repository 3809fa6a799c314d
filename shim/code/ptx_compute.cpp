#include "shim/code/ptx_compute.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace lms::code {

namespace {

bool has(const PtxWords& words, std::string_view word) {
    return std::ranges::find(words, word) != words.end();
}

struct Named {
    std::string_view root;
    PtxCompute what;
};
constexpr std::array kBinary{
    Named{"add", PtxCompute::Add},       Named{"sub", PtxCompute::Subtract},
    Named{"div", PtxCompute::Divide},    Named{"rem", PtxCompute::Remainder},
    Named{"shl", PtxCompute::ShiftLeft}, Named{"shr", PtxCompute::ShiftRight},
    Named{"and", PtxCompute::And},       Named{"or", PtxCompute::Or},
    Named{"xor", PtxCompute::Xor},       Named{"min", PtxCompute::Minimum},
    Named{"max", PtxCompute::Maximum},   Named{"not", PtxCompute::Not},
    Named{"neg", PtxCompute::Negate},    Named{"abs", PtxCompute::Absolute},
};

struct NamedComparison {
    std::string_view word;
    Comparison comparison;
    bool is_unsigned = false;  // whatever the type
};
constexpr std::array kComparisons{
    NamedComparison{"eq", Comparison::Equal},         NamedComparison{"ne", Comparison::NotEqual},
    NamedComparison{"lt", Comparison::Less},          NamedComparison{"le", Comparison::LessEqual},
    NamedComparison{"gt", Comparison::Greater},       NamedComparison{"ge", Comparison::GreaterEqual},
    NamedComparison{"lo", Comparison::Less, true},    NamedComparison{"ls", Comparison::LessEqual, true},
    NamedComparison{"hi", Comparison::Greater, true}, NamedComparison{"hs", Comparison::GreaterEqual, true},
};

// All of its words are looked at, here and below: others may give other values.
void predicate(std::string_view root, std::size_t sources, PtxStep& step) {
    if (root == "and" && sources == 2) step.what = PtxCompute::Both;
    if (root == "or" && sources == 2) step.what = PtxCompute::Either;
    if ((root == "not" || root == "mov") && sources == 1) step.what = PtxCompute::Same;
    step.both = root == "mov";
}

// "setp.lt.and.s32 p, a, b, q"
void compare(const PtxWords& words, std::size_t sources, PtxStep& step) {
    const auto type = ptx_integer_type(words.back());
    const auto comparison = std::ranges::find(kComparisons, words[1], &NamedComparison::word);
    if (!type || comparison == kComparisons.end() || sources < 2 || sources > 3) return;
    step.both = has(words, "and");
    if (words.size() != (step.both || has(words, "or") ? 4 : 3)) return;
    step.what = PtxCompute::Compare;
    step.comparison = comparison->comparison;
    step.type = *type;
    if (comparison->is_unsigned) step.type.is_signed = false;
}

void convert(const PtxWords& words, std::size_t sources, PtxStep& step) {
    if (words.size() != 3 || sources != 1) return;
    const auto to = ptx_integer_type(words[1]);
    const auto from = ptx_integer_type(words.back());
    if (!to || !from || to->bits < 16) return;
    step.what = PtxCompute::Convert;
    step.type = *from;
    step.to = *to;
}

void compute(const PtxWords& words, std::size_t sources, PtxStep& step) {
    const std::string_view root = words[0];
    // "cvta.to.global.u64": addresses of global memory are the same in both spaces.
    if (root == "cvta" && has(words, "global") && sources == 1) step.what = PtxCompute::Move;
    if (words.size() == 3) {
        const bool wide = words[1] == "wide";
        const bool low = words[1] == "lo";
        if (root == "mul" && sources == 2 && (wide || low || words[1] == "hi"))
            step.what = wide  ? PtxCompute::MultiplyWide
                        : low ? PtxCompute::Multiply
                              : PtxCompute::MultiplyHigh;
        if (root == "mad" && sources == 3 && (wide || low))
            step.what = wide ? PtxCompute::MultiplyAddWide : PtxCompute::MultiplyAdd;
    }
    if (words.size() != 2) return;
    if (root == "mov" && sources == 1) step.what = PtxCompute::Move;
    if (root == "selp" && sources == 3) step.what = PtxCompute::Select;
    if (root == "bfe" && sources == 3) step.what = PtxCompute::Extract;
    const auto named = std::ranges::find(kBinary, root, &Named::root);
    const bool unary = root == "not" || root == "neg" || root == "abs";
    if (named != kBinary.end() && sources == (unary ? 1u : 2u)) step.what = named->what;
}

}  // namespace

PtxWords ptx_words(std::string_view opcode) {
    PtxWords words;
    while (!opcode.empty()) {
        const std::size_t dot = std::min(opcode.find('.'), opcode.size());
        words.push_back(opcode.substr(0, dot));
        opcode.remove_prefix(std::min(dot + 1, opcode.size()));
    }
    return words;
}

unsigned ptx_bits(std::string_view type) {
    if (type.size() < 2 || std::string_view("busf").find(type.front()) == std::string_view::npos) return 0;
    unsigned bits = 0;
    const char* const end = type.data() + type.size();
    const auto [stopped, error] = std::from_chars(type.data() + 1, end, bits);
    const bool twice = std::string_view(stopped, static_cast<std::size_t>(end - stopped)) == "x2";
    if (error != std::errc() || (stopped != end && !twice)) return 0;
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 || bits == 128 ? bits * (twice ? 2 : 1) : 0;
}

std::optional<IntegerType> ptx_integer_type(std::string_view word) {
    const unsigned bits = ptx_bits(word);
    if (bits == 0 || bits > 64 || word.front() == 'f' || word.ends_with("x2")) return std::nullopt;
    return IntegerType{bits, word.front() == 's'};
}

ValueRange ptx_loaded(std::string_view type) {
    const auto integer = ptx_integer_type(type);
    if (!integer || integer->bits > 16) return ValueRange::any();
    const std::int64_t count = std::int64_t{1} << integer->bits;
    return integer->is_signed ? ValueRange{-count / 2, count / 2 - 1} : ValueRange{0, count - 1};
}

PtxStep ptx_computes(const PtxWords& words, std::size_t sources) {
    PtxStep step;
    const std::string_view root = words[0];
    if (words.back() == "pred" && words.size() == 2) {
        predicate(root, sources, step);
    } else if (root == "setp") {
        compare(words, sources, step);
    } else if (root == "cvt") {
        convert(words, sources, step);
    } else if (const auto type = ptx_integer_type(words.back()); type && type->bits >= 16) {
        step.type = *type;
        compute(words, sources, step);
    }
    return step;
}

}  // namespace lms::code
