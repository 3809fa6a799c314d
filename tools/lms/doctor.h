// lms doctor: whether the shim can work here, and if not, why.
#pragma once

namespace lms::tool {

// Prints what it finds to stdout, as text or JSON. Returns the exit status: 0 if a program run now would have
// its GPU enlarged. With `simulated`, looks at the simulated GPU instead of the machine's.
int doctor(bool simulated, bool as_json);

}  // namespace lms::tool
