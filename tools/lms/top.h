// lms top: what the processes under the shim do, while they do it.
#pragma once

namespace lms::tool {

// On a terminal until `q`, elsewhere once, after a second; as JSON at once. `process`: that one alone, and it
// is an error if it does not run under the shim; 0: all of this user's. Returns the exit status.
int top(int process, bool as_json);

}  // namespace lms::tool
