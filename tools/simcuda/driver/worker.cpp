#include "tools/simcuda/driver/worker.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <thread>

namespace simcuda::driver {

void start_worker(const char* name, std::function<void()> body) {
    sigset_t all, before;
    sigfillset(&all);
    // Faults are the executor's to catch, on the thread that made them; with SIGURG it stops a kernel.
    for (int wanted : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGURG}) sigdelset(&all, wanted);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread([body = std::move(body)] {
        ::prctl(PR_SET_TIMERSLACK, 1000);  // ns: delays are tens of microseconds, the default slack is 50
        body();
    });
    pthread_setname_np(thread.native_handle(), name);
    thread.detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace simcuda::driver
