// Several PTX modules made into one program, as the driver's linker would.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tools/simcuda/driver/jit.h"
#include "tools/simcuda/ptx/program.h"

namespace simcuda::driver {

// One PTX text that holds what all of them define. What one declares .extern and another defines becomes the
// same thing; of .weak and .common definitions the first is kept; names without linkage stay apart. Throws
// Failure with CUDA_ERROR_INVALID_SOURCE for what two of them define, having named it on stderr.
std::string link_ptx(const std::vector<std::string>& texts);

// What `text` defines for others, and what the texts use that none of them defines, each name once.
std::set<std::string> definitions_of(const std::string& text);
std::set<std::string> undefined_in(const std::vector<std::string>& texts);

// Links and translates. `log`, if not null, is given what is wrong with the PTX. Throws Failure with
// CUDA_ERROR_INVALID_PTX, having said why on stderr.
std::shared_ptr<const ptx::Program> translate_ptx(const std::vector<std::string>& texts, JitLog* log);

}  // namespace simcuda::driver
