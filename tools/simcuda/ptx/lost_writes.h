// Whether kernels ask where what they write lands (exec/tally.h). It makes them slower, so only a perverse
// driver has it. What matrix instructions store lands where it should.
#pragma once

namespace simcuda::ptx {

bool writes_may_be_lost();
void lose_writes();  // in all that is translated from now on

}  // namespace simcuda::ptx
