// Which parameters of a kernel are nothing but where memory begins: they move its accesses along and decide
// nothing else, so that what is known of them at one address holds at any other. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shim/code/ptx_steps.h"

namespace lms::code {

struct PtxPointers {
    std::vector<bool> moves_along;                        // by input of PtxSteps
    std::vector<std::optional<std::uint32_t>> of_access;  // by access: the input that it moves along with

    static PtxPointers of(const PtxSteps& steps);
};

}  // namespace lms::code
