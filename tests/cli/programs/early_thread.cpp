// Preloaded: starts a thread before `main`, which looks at the environment for as long as the program runs.
#include <cstdlib>
#include <thread>

[[gnu::constructor]] static void start_thread() {
    std::thread([] {
        while (std::getenv("THERE_IS_NO_SUCH_VARIABLE") == nullptr) std::this_thread::yield();
    }).detach();
}
