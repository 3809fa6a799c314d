#include "shim/trace/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace lms::trace {

std::string demangled(const std::string& symbol) {
    // Without the prefix the demangler takes a name for a type: "f" for float.
    if (!symbol.starts_with("_Z")) return symbol;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr), std::free);
    return name ? name.get() : symbol;
}

}  // namespace lms::trace
