// FunctionEmitter::line, for the files that implement the emitter.
#pragma once

#include <fmt/format.h>

#include <iterator>

#include "tools/simcuda/ptx/emitter.h"

namespace simcuda::ptx {

template <typename... Args>
void FunctionEmitter::line(std::string_view format, const Args&... args) {
    fmt::vformat_to(std::back_inserter(out_.text), format, fmt::make_format_args(args...));
    out_.text += '\n';
}

}  // namespace simcuda::ptx
