// PTX fundamental types and state spaces, and their C counterparts.
#pragma once

#include <cstdint>
#include <string_view>

namespace simcuda::ptx {

// clang-format off: one row per family
enum class Type : std::uint8_t {
    None,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    B128,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Tf32,
    E4m3x2,
    E5m2x2,
    Pred,
};
// clang-format on

using TypeSet = std::uint32_t;  // one bit per Type

template <typename... T>
constexpr TypeSet types_of(T... type) {
    return ((TypeSet{1} << static_cast<unsigned>(type)) | ...);
}
constexpr bool contains(TypeSet set, Type type) {
    return set >> static_cast<unsigned>(type) & 1;
}

inline constexpr TypeSet kUnsigned = types_of(Type::U8, Type::U16, Type::U32, Type::U64);
inline constexpr TypeSet kSigned = types_of(Type::S8, Type::S16, Type::S32, Type::S64);
inline constexpr TypeSet kBits = types_of(Type::B8, Type::B16, Type::B32, Type::B64);
inline constexpr TypeSet kFloats =
    types_of(Type::F16, Type::F16x2, Type::Bf16, Type::Bf16x2, Type::F32, Type::F64);
inline constexpr TypeSet kIntegers = kUnsigned | kSigned;

constexpr bool is_signed(Type type) {
    return contains(kSigned, type);
}
constexpr bool is_integer(Type type) {
    return contains(kIntegers, type);
}
constexpr bool is_float(Type type) {
    return contains(kFloats, type);
}

Type parse_type(std::string_view name);  // "u32"; None when it is no type
std::string_view name_of(Type type);     // "u32"
std::string_view c_type(Type type);      // the C type a value is computed in; f16 forms are their bits
unsigned bytes_of(Type type);
Type widened(Type type);         // u16 -> u32, s32 -> s64
Type bits_type(unsigned bytes);  // 4 -> b32

enum class Space : std::uint8_t { Generic, Global, Const, Shared, Cluster, Local, Param };

}  // namespace simcuda::ptx
