// Which kernels' arguments do not tell what they reach, from the code that the program has loaded. Only
// LMS_SAFETY=opaque tells kernels apart; the callers see to it that otherwise nothing is kept here.
#pragma once

#include <span>
#include <string_view>

namespace lms::engine {

// Thread-safe, for the process.

// The driver has loaded `image`, which may be gone after this call, as the module or library `handle`. Copies
// the PTX in it, if any; no look is taken before a kernel of it is asked about.
void code_loaded(const void* handle, const void* image);
// The same from a file.
void code_loaded_from(const void* handle, const char* path);
// It is about to be unloaded.
void code_unloaded(const void* handle);

enum class Addresses {
    Complete,    // by the arguments, by pointer tables and by variables
    Incomplete,  // some may be loaded from memory that kernels have written
    Unknown,     // there is no PTX to see
};

// Of the kernel `name` of a module or library (`owners`, as far as they are known; else of all that are
// loaded).
Addresses addresses_of(std::span<const void* const> owners, std::string_view name);

}  // namespace lms::engine
