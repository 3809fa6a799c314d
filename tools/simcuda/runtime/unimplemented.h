// What a function that this runtime lacks answers.
#pragma once

namespace simcuda::runtime {

// Names the function on stderr unless that was done before. Returns cudaErrorNotSupported, and records it.
int answer_unimplemented(const char* name, bool named_before);

}  // namespace simcuda::runtime
