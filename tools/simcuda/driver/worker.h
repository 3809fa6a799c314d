// Starts the driver's own threads.
#pragma once

#include <functional>

namespace simcuda::driver {

// Runs `body`, which never returns, on a new thread that no signal of the program is delivered to.
void start_worker(const char* name, std::function<void()> body);

}  // namespace simcuda::driver
