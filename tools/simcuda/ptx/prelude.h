// C text that every translated unit starts with: what the instruction table and the handlers call.
#pragma once

namespace simcuda::ptx {

extern const char kPreludeIntegers[];
extern const char kPreludeFloats[];
extern const char kPreludeConversions[];
extern const char kPreludeHalves[];
extern const char kPreludeMemory[];
extern const char kPreludeSmallFloats[];
extern const char kPreludeCounting[];  // only where work is counted
extern const char kPreludeLosing[];    // only where writes may be lost
extern const char kPreludeMatrices[];  // only where such instructions are

}  // namespace simcuda::ptx
