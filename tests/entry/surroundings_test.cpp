// What a process may find around it: limits, closed descriptors, keys that others have taken.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/entry/graph_rig.h"
#include "tests/support/child.h"
#include "tests/support/process.h"

using namespace rig;

BODY(no_files) {
    const Gpu gpu;
    // The simulated GPU's memory is files; there are none from here on.
    const rlimit none{0, 0};
    EXPECT(setrlimit(RLIMIT_FSIZE, &none) == 0);
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
}

TEST_CASE("surroundings: where no file may be written, no signal ends the program") {
    run_both("no_files", Driver::Simulated, {});
}

BODY(no_standard_streams) {
    const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
    const Gpu gpu;
    for (const int each : {0, 1, 2}) close(each);
    {
        const Buffer a(kBuffer, 1);
        Crowd crowd;
        crowd.evict(a);
        EXPECT(a.holds(1));
    }
    bool taken[3];
    for (const int each : {0, 1, 2}) taken[each] = fcntl(each, F_GETFD) >= 0;
    dup2(out, STDOUT_FILENO);
    for (const int each : {0, 1, 2}) EXPECT(!taken[each]);
}

TEST_CASE("surroundings: the shim's files do not become the program's standard streams") {
    run_both("no_standard_streams", Driver::Simulated,
             {{"LMS_TRACE", support::scratch_file("trace")},
              {"LMS_STATS", support::scratch_file("stats")},
              {"LMS_LOG", "debug:" + support::scratch_file("log")}});
}

BODY(no_keys) {
    static std::vector<pthread_key_t> keys;
    static const char others = 0;
    pthread_key_t key{};
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    // The driver has its own by then.
    OK(cuMemsetD8Async_ptsz, a.at(), 2, kBuffer, nullptr);
    while (pthread_key_create(&key, nullptr) == 0) keys.push_back(key);
    Crowd crowd;
    const auto use = [&] {
        OK(cuCtxSetCurrent, gpu.context);
        for (const pthread_key_t each : keys) pthread_setspecific(each, &others);
        OK(cuMemsetD8Async_ptsz, a.at(), 3, kBuffer, nullptr);
        OK(cuStreamSynchronize_ptsz, nullptr);
        crowd.press();
        for (int round = 0; round < 3; ++round) {
            OK(cuMemsetD8Async_ptsz, a.at(), 4, kBuffer, nullptr);
            OK(cuStreamSynchronize_ptsz, nullptr);
        }
        for (const pthread_key_t each : keys) EXPECT(pthread_getspecific(each) == &others);
    };
    use();
    std::thread(use).join();
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 4));
}

TEST_CASE("surroundings: a program may have taken all keys of threads") {
    run_both("no_keys", Driver::Simulated, {});
}

BODY(forks_beside_calls) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    const CUstream kept = new_stream();
    std::atomic<bool> over = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            OK(cuCtxSetCurrent, gpu.context);
            while (!over) {
                const Buffer mine(kBuffer);
                OK(cuMemsetD8_v2, mine.at(), 1, kBuffer);
                const CUstream stream = new_stream();
                OK(cuStreamDestroy_v2, stream);
            }
        });
    }
    for (int round = 0; round < 200; ++round) {
        const int end = support::in_child([&] {
            ::alarm(20);
            if (round % 4 == 3) std::exit(0);
            std::vector<std::uint8_t> data(kBuffer);
            if (CU(cuStreamDestroy_v2)(kept) == CUDA_SUCCESS) return 1;
            if (CU(cuMemFree_v2)(a.at()) == CUDA_SUCCESS) return 2;
            if (CU(cuMemcpyDtoH_v2)(data.data(), a.at(), kBuffer) == CUDA_SUCCESS) return 3;
            if (CU(cuCtxSynchronize)() == CUDA_SUCCESS) return 4;
            CUdeviceptr more = 0;
            if (CU(cuMemAllocAsync)(&more, kBuffer, kept) == CUDA_SUCCESS) return 5;
            if (CU(cuDevicePrimaryCtxRelease_v2)(gpu.device) == CUDA_SUCCESS) return 6;
            return 0;
        });
        EXPECT(end == 0);
        if (end != 0) break;
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT(a.holds(1));
}

TEST_CASE("surroundings: a child of fork is refused, whatever other threads were about to do") {
    run_both("forks_beside_calls", Driver::Simulated,
             {{"LMS_TRACE", support::scratch_file("trace")},
              {"LMS_STATS", support::scratch_file("stats")},
              {"LMS_EXEMPT", "libnone"}});
}

BODY(small_stack) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    EXPECT(pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) == 0);
    const auto work = [](void*) -> void* {
        volatile char own[10 << 10];
        for (std::size_t at = 0; at < sizeof own; at += 64) own[at] = 1;
        return nullptr;
    };
    pthread_t thread{};
    EXPECT(pthread_create(&thread, &small, work, nullptr) == 0);
    pthread_join(thread, nullptr);
}

TEST_CASE("surroundings: the shim leaves threads their stacks") {
    run_both("small_stack", Driver::Simulated, {});
}

BODY(before_exec) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    execl("/proc/self/exe", "again", "--body", "after_exec", nullptr);
    EXPECT(false);
}

BODY(after_exec) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const std::string told =
        support::run({support::build_dir() + "/lms", "top", "--json", std::to_string(getpid())},
                     {{"LD_PRELOAD", ""}})
            .out;
    EXPECT(told.find("\"allocations\": 2,") != std::string::npos);
}

TEST_CASE("surroundings: after an exec tools see the process as it is then") {
    run_both("before_exec", Driver::Simulated, {});
}
