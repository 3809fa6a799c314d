// Whether kernels count what they do: instructions, and bytes of global memory. It makes them slower, so only
// simulated time has it.
#pragma once

namespace simcuda::ptx {

bool counts_work();
void count_work();  // in all that is translated from now on

}  // namespace simcuda::ptx
