// Whether a GPU's memory can be moved and used where it is put, tried on it.
#pragma once

#include <string>

namespace lms::tool {

// `lms self-check`: prints the verdict on the GPU at that address of the bus, or, where the driver ended the
// process that tried it, that; an exit status.
int self_check(const std::string& bus_id);

// That verdict, from another process.
std::string self_check_apart(const std::string& bus_id, const std::string& driver);

}  // namespace lms::tool
