// FunctionEmitter::line, for the files that implement the emitter.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "tools/simcuda/ptx/emitter.h"

namespace simcuda::ptx {

// The C text of an address on the other side: of a device address the host's, and the other way round.
std::string other_side_text(const std::string& address);

template <typename... Args>
void FunctionEmitter::line(std::string_view format, const Args&... args) {
    fmt::vformat_to(std::back_inserter(out_.text), format, fmt::make_format_args(args...));
    out_.text += '\n';
}

}  // namespace simcuda::ptx
