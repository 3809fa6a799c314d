// What integer tests compute with: values of any integer type in one that holds them all.
#pragma once

#include <vector>

#include "tests/ptx/instructions.h"

namespace simcuda::testing {

using Wide = __int128;

inline unsigned width(Type type) {
    return ptx::bytes_of(type) * 8;
}

// The number a register's bits stand for in a type.
inline Wide value(Type type, Bits bits) {
    const unsigned unused = 64 - width(type);
    return ptx::is_signed(type) ? Wide{static_cast<std::int64_t>(bits << unused) >> unused} : Wide{bits};
}

inline Wide lowest(Type type) {
    return ptx::is_signed(type) ? -(Wide{1} << (width(type) - 1)) : Wide{0};
}
inline Wide highest(Type type) {
    return (Wide{1} << (width(type) - ptx::is_signed(type))) - 1;
}

inline std::vector<Type> arithmetic_types() {
    return {Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64};
}

}  // namespace simcuda::testing
