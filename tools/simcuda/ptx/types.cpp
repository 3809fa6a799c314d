// Names and sizes of the PTX types.
#include "tools/simcuda/ptx/types.h"

#include <iterator>

namespace simcuda::ptx {
namespace {

struct Row {
    std::string_view name;
    std::string_view c;
    unsigned bytes;
};

// In the order of enum Type.
constexpr Row kRows[] = {
    {"", "void", 0},    {"u8", "u8", 1},      {"u16", "u16", 2},    {"u32", "u32", 4},
    {"u64", "u64", 8},  {"s8", "s8", 1},      {"s16", "s16", 2},    {"s32", "s32", 4},
    {"s64", "s64", 8},  {"b8", "u8", 1},      {"b16", "u16", 2},    {"b32", "u32", 4},
    {"b64", "u64", 8},  {"b128", "u128", 16}, {"f16", "u16", 2},    {"f16x2", "u32", 4},
    {"bf16", "u16", 2}, {"bf16x2", "u32", 4}, {"f32", "float", 4},  {"f64", "double", 8},
    {"tf32", "u32", 4}, {"e4m3x2", "u16", 2}, {"e5m2x2", "u16", 2}, {"pred", "_Bool", 1},
};

const Row& row(Type type) {
    return kRows[static_cast<unsigned>(type)];
}

}  // namespace

Type parse_type(std::string_view name) {
    for (unsigned i = 1; i < std::size(kRows); ++i)
        if (kRows[i].name == name) return static_cast<Type>(i);
    return Type::None;
}

std::string_view name_of(Type type) {
    return row(type).name;
}
std::string_view c_type(Type type) {
    return row(type).c;
}
unsigned bytes_of(Type type) {
    return row(type).bytes;
}

Type widened(Type type) {
    switch (type) {
        case Type::U8:
            return Type::U16;
        case Type::U16:
            return Type::U32;
        case Type::U32:
            return Type::U64;
        case Type::S8:
            return Type::S16;
        case Type::S16:
            return Type::S32;
        case Type::S32:
            return Type::S64;
        default:
            return Type::None;
    }
}

Type bits_type(unsigned bytes) {
    switch (bytes) {
        case 1:
            return Type::B8;
        case 2:
            return Type::B16;
        case 4:
            return Type::B32;
        case 8:
            return Type::B64;
        case 16:
            return Type::B128;
        default:
            return Type::None;
    }
}

}  // namespace simcuda::ptx
