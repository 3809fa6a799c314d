// What a process holds between two programs, when it should hold what it did before (soak.py).
#pragma once

#include <string>

namespace rnd {

// "rss_kib=... mappings=... files=... threads=... largest=...": of the process, and of the largest buffer
// that it could have now, up to a bound. The simulated driver writes its report (SIMCUDA_REPORT), which has
// the rest.
std::string look();

}  // namespace rnd
