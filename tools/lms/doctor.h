// lms doctor: whether the shim can work here, and if not, why.
#pragma once

namespace lms::tool {

struct DoctorOptions {
    bool simulated = false;  // look at the simulated GPU instead of the machine's
    bool as_json = false;
    bool tries = false;  // try moves on each GPU
};

// Prints what it finds to stdout, as text or JSON. Returns the exit status: 0 if a program run now would have
// its GPU enlarged.
int doctor(const DoctorOptions& options);

}  // namespace lms::tool
