#include "shim/trace/demangle.h"

#include <cstddef>
#include <string_view>

// libstdc++'s (docs: "Demangling"): gives the name to a function, part by part, and keeps nothing on the
// heap.
extern "C" int __gcclibcxx_demangle_callback(const char* mangled,
                                             void (*part)(const char* text, std::size_t bytes, void* to),
                                             void* to);

namespace lms::trace {
namespace {

// A mangled name may refer to its own parts: each letter more doubles the source form of one made to.
constexpr std::size_t kLongest = 64 << 10;
struct TooLong {};

void append(const char* text, std::size_t bytes, void* to) {
    std::string& name = *static_cast<std::string*>(to);
    if (name.size() + bytes > kLongest) throw TooLong();
    name.append(text, bytes);
}

}  // namespace

std::string demangled(const std::string& symbol) try {
    // Without the prefix the demangler takes a name for a type: "f" for float.
    if (!symbol.starts_with("_Z")) return symbol;
    std::string name;
    return __gcclibcxx_demangle_callback(symbol.c_str(), append, &name) == 0 ? name : symbol;
} catch (const TooLong&) {
    return symbol;
}

}  // namespace lms::trace
