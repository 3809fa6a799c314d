#pragma once

#include <cstddef>

namespace lms::code {

// One parameter of a kernel in its parameter block.
struct Parameter {
    std::size_t offset;  // bytes from the start of the block
    std::size_t bytes;

    friend bool operator==(const Parameter&, const Parameter&) = default;
};

}  // namespace lms::code
