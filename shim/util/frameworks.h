// Frameworks whose own allocator divides large pieces of memory, and the environment variables that make each
// allocate every tensor by itself. Pure: what to set, given what is set.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lms::util {

// All strings are static and null-terminated.
struct FrameworkVariable {
    const char* name;
    const char* value;     // null: it is never set here
    bool decides = false;  // where it is set already, the framework keeps all that it has
};

struct Framework {
    std::string_view name;  // in LMS_FRAMEWORKS
    bool automatic;         // `auto` means this one too
    std::span<const FrameworkVariable> variables;
};

// The frameworks that a value of LMS_FRAMEWORKS means: "auto", "off", or names between commas. Nothing if it
// is not accepted. May throw std::bad_alloc.
std::optional<std::vector<const Framework*>> frameworks_of(std::string_view text);

// What completes "expected ..." for a value that is not accepted.
inline constexpr std::string_view kFrameworksAccepted =
    "auto, off, or names between commas: jax, pytorch, tensorflow";

// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* variable)>;

// The variable by which the user has decided; null: none.
const FrameworkVariable* deciding_variable(const Framework& framework, const Environment& now);

// The variables to set for the framework; none if the user has decided. May throw std::bad_alloc.
std::vector<const FrameworkVariable*> missing_variables(const Framework& framework, const Environment& now);

// Whether the framework will allocate each tensor by itself, by the shim or by the user.
bool is_set_up(const Framework& framework, const Environment& now);

}  // namespace lms::util
