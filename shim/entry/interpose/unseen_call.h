// Calls of driver functions that the shim does not know: rows of kind ANY, and names that no row has.
//
// What such a call does cannot be seen, so it counts as work that may reach and write any memory, in any
// stream, from before the call until every stream has been seen idle or has passed a later fence. The program
// gets a trampoline that takes arguments of every kind: all registers that may carry some, and 256 bytes of
// the stack.
#pragma once

#include <string_view>

namespace lms::entry {

// What a program is to get for `function`, which the driver gave for that name: a trampoline to it, the same
// for the same function. `version`: as cuGetProcAddress was asked, 0 for dlsym. The function itself where no
// trampoline is left, or no memory. Never throws; any thread.
void* trampoline_to(void* function, std::string_view symbol, int version) noexcept;

}  // namespace lms::entry
