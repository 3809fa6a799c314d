// A process's life: children of fork, the end in any order, a launch under a lock that a callback needs.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"
#include "tests/entry/overlay/record.h"
#include "tests/support/child.h"
#include "tests/support/process.h"
#include "tools/lms/trace_file.h"

using namespace rig;

namespace {

// What the driver itself answers in a child.
CUresult of_driver() {
    CUdeviceptr address = 0;
    return SIM(cuMemAlloc_v2)(&address, kBuffer);
}

}  // namespace

namespace {

std::atomic<bool> allocated;

void* allocate_to_be_cancelled(void* context) {
    int before = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(before, nullptr);
    CUdeviceptr address = 0;
    OK(cuCtxSetCurrent, static_cast<CUcontext>(context));
    OK(cuMemAlloc_v2, &address, kBuffer);  // the first: the shim looks at the machine
    allocated = true;
    pthread_testcancel();
    return nullptr;
}

}  // namespace

FAMILY_TEST("process: a thread that is to be cancelled is so where the program lets it, not in the shim") {
    const Gpu gpu;
    CUcontext context = nullptr;
    OK(cuCtxGetCurrent, &context);
    pthread_t thread;
    void* end = nullptr;
    EXPECT(pthread_create(&thread, nullptr, allocate_to_be_cancelled, context) == 0);
    EXPECT(pthread_join(thread, &end) == 0);
    EXPECT(allocated);
    EXPECT(end == PTHREAD_CANCELED);
}

namespace {

// What a signal handler finds, and what it was answered.
struct Interrupted {
    Gate gate;
    CUdeviceptr evicted = 0, unneeded = 0;
    CUstream stream = nullptr;
    CUresult launched = CUDA_SUCCESS, freed = CUDA_ERROR_UNKNOWN;
};
Interrupted* interrupted = nullptr;

void handle(int) {
    interrupted->launched = CU(cuMemsetD8Async)(interrupted->evicted, 1, kBuffer, interrupted->stream);
    interrupted->gate.open();
    interrupted->freed = CU(cuMemFree_v2)(interrupted->unneeded);
}

}  // namespace

// Of the thread that waits in the shim for what the handler would wait for behind it.
OVERLAY_TEST("process: CUDA is refused to a signal handler that interrupts its thread's moves") {
    const Gpu gpu;
    Interrupted state;
    interrupted = &state;
    const CUstream held = new_stream();
    state.stream = new_stream();
    const Buffer evicted(kBuffer, 1);
    const Buffer needed(kBuffer, 2);
    state.evicted = evicted.at();
    OK(cuMemAlloc_v2, &state.unneeded, kBuffer);
    {
        Crowd crowd;
        crowd.evict(evicted);
        crowd.evict(needed);
    }
    hold_all(state.gate, held);
    std::signal(SIGUSR1, handle);
    overlay::record().events_until = 40;
    overlay::record().events_asked = [] { std::raise(SIGUSR1); };
    OK(cuMemsetD8Async, needed.at(), 5, kBuffer, state.stream);
    EXPECT(overlay::record().events_asked == nullptr);
    EXPECT(state.launched == CUDA_ERROR_NOT_PERMITTED);
    EXPECT(state.freed == CUDA_SUCCESS);
    OK(cuCtxSynchronize);
    EXPECT(needed.read() == std::vector<std::uint8_t>(kBuffer, 5));
    EXPECT(evicted.holds(1));
}

BODY(process_moves_away) {
    EXPECT(chdir("/") == 0);
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
    for (int i = 0; i < 20'000; ++i) OK(cuMemsetD8Async, a.at(), 2, 16, nullptr);  // events for two files
}

TEST_CASE("process: relative paths in settings are so to the folder in which it began") {
    // Through a folder that "/" does not have.
    const std::string build = std::filesystem::relative(support::build_dir());
    const auto relative = [&](const std::string& file) {
        return build + "/" + std::filesystem::relative(support::scratch_file(file), build).string();
    };
    const std::string trace = relative("trace"), log = relative("log"), stats = relative("stats.json");
    const Outcome outcome = run("process_moves_away", Driver::Simulated,
                                {{"LMS_DRIVER", build + "/sim/libcuda.so.1"},
                                 {"LMS_TRACE", trace},
                                 {"LMS_TRACE_SIZE", "1"},
                                 {"LMS_LOG", "info:" + log},
                                 {"LMS_STATS", stats},
                                 {"LMS_POLICY", build + "/policy/lru.so"}});
    CHECK(outcome.failures == "");
    CHECK(outcome.err == "");
    for (const std::string& file : {trace, trace + ".1", log, stats})
        CHECK_MESSAGE(support::read_file(file) != "", file);
    CHECK(support::read_file(log).find("policy lru") != std::string::npos);
}

BODY(process_fork) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    // Data loaders: they use no CUDA, and end one way or the other.
    EXPECT(support::in_child([] { std::exit(7); }) == 7);
    EXPECT(support::in_child([] { return 8; }) == 8);
    EXPECT(support::in_child([] {
               execl("/bin/sh", "sh", "-c", "exit 9", nullptr);
               return 1;
           }) == 9);
    EXPECT(a.holds(1));
    crowd.press();
    EXPECT(a.holds(1));
}

TEST_CASE("process: children that use no CUDA leave statistics and trace to the parent") {
    for (const char* host_mapping : {"1", "0"}) {
        CAPTURE(host_mapping);
        const std::string stats = support::scratch_file("stats.json");
        const std::string path = support::scratch_file("trace");
        const Outcome outcome =
            run("process_fork", Driver::Simulated,
                {{"SIMCUDA_HOST_VMM", host_mapping}, {"LMS_STATS", stats}, {"LMS_TRACE", path}});
        CHECK(outcome.failures == "");
        const auto counters = nlohmann::json::parse(support::read_file(stats), nullptr, false);
        REQUIRE(counters.is_object());
        CHECK(counters["allocations"] == 13);
        CHECK(counters["frees"] == 13);
        lms::tool::Trace trace;
        std::string problem;
        lms::tool::read_trace_file(path, trace, problem);
        REQUIRE(problem == "");
        CHECK(trace.ended);
        CHECK(trace.events.size() > 26);
    }
}

BODY(process_fork_cuda) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    const auto use_cuda = [&] {
        const CUresult gone = of_driver();
        if (gone == CUDA_SUCCESS) return 1;
        CUdeviceptr fresh = 0;
        std::vector<std::uint8_t> data(kBuffer);
        const CUdeviceptr to = a.at();
        const CUdeviceptr from = b.at();
        const auto words = static_cast<std::uint32_t>(kBuffer / 4);
        void* parameters[] = {const_cast<CUdeviceptr*>(&to), const_cast<CUdeviceptr*>(&from),
                              const_cast<std::uint32_t*>(&words), const_cast<std::uint32_t*>(&words)};
        if (CU(cuMemAlloc_v2)(&fresh, kBuffer) == CUDA_SUCCESS) return 2;
        if (CU(cuMemAllocAsync)(&fresh, kBuffer, stream) == CUDA_SUCCESS) return 3;
        if (CU(cuMemcpyDtoH_v2)(data.data(), a.at(), kBuffer) == CUDA_SUCCESS) return 4;
        if (CU(cuMemsetD8Async)(b.at(), 0, kBuffer, stream) == CUDA_SUCCESS) return 5;
        if (CU(cuLaunchKernel)(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr) == CUDA_SUCCESS)
            return 6;
        if (CU(cuMemFree_v2)(b.at()) == CUDA_SUCCESS) return 7;
        return 0;
    };
    EXPECT(support::in_child(use_cuda) == 0);
    EXPECT(a.holds(1));
    EXPECT(b.holds(2));
}

TEST_CASE("process: a child that uses CUDA gets an error, as it does of CUDA") {
    run_both("process_fork_cuda", Driver::Simulated, {});
}

BODY(process_per_thread_at_exit) {
    static Buffer* a = nullptr;
    static Crowd* crowd = nullptr;
    static CUcontext second = nullptr;
    const auto use = [] {
        OK(cuMemsetD8Async_ptsz, a->at(), 3, kBuffer, nullptr);
        OK(cuStreamSynchronize_ptsz, nullptr);
        crowd->press();
    };
    static const auto use_both = [use] {
        use();
        OK(cuCtxPushCurrent_v2, second);
        use();
        OK(cuCtxPopCurrent_v2, nullptr);
        use();
    };
    std::atexit([] {
        use_both();
        if (a->read() != std::vector<std::uint8_t>(kBuffer, 3)) std::abort();
    });
    const Gpu gpu;
    a = new Buffer(kBuffer, 1);
    crowd = new Crowd;
    OK(cuCtxCreate_v4, &second, nullptr, 0, gpu.device);
    OK(cuCtxSetCurrent, gpu.context);
    use_both();
}

TEST_CASE("process: an exit handler works on the per-thread default stream as before") {
    // It runs when the thread_local objects of the libraries it calls are gone; what they were is
    // overwritten.
    run_both("process_per_thread_at_exit", Driver::Simulated, {{"MALLOC_PERTURB_", "165"}});
}

BODY(process_deinitialized) {
    const Gpu gpu;
    // Freed by destructors and exit handlers that run when the driver is gone.
    static Buffer* const a = new Buffer(kBuffer, 1);
    static Crowd* const crowd = new Crowd;
    crowd->evict(*a);
    static CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemsetD8Async, a->at(), 1, kBuffer, stream);
    std::atexit([] {
        void* const driver = dlopen(std::getenv("LMS_DRIVER"), RTLD_NOW | RTLD_LOCAL);
        const auto end = where::glibc_lookup()(driver, "overlay_deinitialize");
        reinterpret_cast<void (*)()>(end)();
        CUdeviceptr fresh = 0;
        std::vector<std::uint8_t> data(kBuffer);
        FAILS(CUDA_ERROR_DEINITIALIZED, cuMemFree_v2, a->at());
        FAILS(CUDA_ERROR_DEINITIALIZED, cuMemFreeAsync, a->at(), stream);
        FAILS(CUDA_ERROR_DEINITIALIZED, cuStreamDestroy_v2, stream);
        FAILS(CUDA_ERROR_DEINITIALIZED, cuStreamSynchronize, stream);
        EXPECT(CU(cuMemAlloc_v2)(&fresh, kBuffer) != CUDA_SUCCESS);
        EXPECT(CU(cuMemcpyDtoH_v2)(data.data(), a->at(), kBuffer) != CUDA_SUCCESS);
        EXPECT(CU(cuCtxDestroy_v2)(nullptr) != CUDA_SUCCESS);
        EXPECT(CU(cuDevicePrimaryCtxRelease_v2)(0) != CUDA_SUCCESS);
        EXPECT(CU(cuDevicePrimaryCtxReset_v2)(0) != CUDA_SUCCESS);
        delete crowd;
    });
}

TEST_CASE("process: calls after the driver's end are answered, and the process ends") {
    for (const char* host_mapping : {"1", "0"}) {
        CAPTURE(host_mapping);
        const std::string stats = support::scratch_file("stats.json");
        const Outcome outcome = run("process_deinitialized", Driver::Overlay,
                                    {{"SIMCUDA_HOST_VMM", host_mapping}, {"LMS_STATS", stats}});
        CHECK(outcome.failures == "");
        CHECK(nlohmann::json::accept(support::read_file(stats)));
    }
}

// Python's interpreter lock: the launching thread has it, and all that is on the GPU is in use behind a
// callback that wants it.
BODY(process_lock) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    CUstream busy = nullptr;
    CUstream other = nullptr;
    OK(cuStreamCreate, &busy, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    static std::mutex interpreter;
    const auto callback = [](void*) { const std::lock_guard lock(interpreter); };
    std::vector<std::unique_ptr<Buffer>> resident;
    for (std::uint32_t i = 0; i < 7; ++i) resident.push_back(std::make_unique<Buffer>(kBuffer, i));
    {
        const std::lock_guard lock(interpreter);
        OK(cuLaunchHostFunc, busy, callback, nullptr);
        for (const auto& buffer : resident) OK(cuMemsetD8Async, buffer->at(), 3, kBuffer, busy);
        const CUdeviceptr to = out.at();
        const CUdeviceptr from = a.at();
        const std::uint32_t zero = 0;
        const auto words = static_cast<std::uint32_t>(kBuffer / 4);
        EXPECT(launch("add", words, other, to, from, zero, words) == CUDA_SUCCESS);
        EXPECT(a.evicted());
        FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery, busy);
    }
    OK(cuStreamSynchronize, other);
    OK(cuStreamSynchronize, busy);
    EXPECT(out.holds(1));
    for (const auto& buffer : resident) EXPECT(buffer->read() == std::vector<std::uint8_t>(kBuffer, 3));
}

TEST_CASE(
    "process: a launch under a lock that a pending callback needs goes on, where memory stays addressable") {
    CHECK(run("process_lock", Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}}).failures == "");
}

// Where it does not stay so, the launch waits, and says what for; here until another thread lets the lock go.
BODY(process_lock_waits) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer out(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    crowd.evict(out);
    EXPECT(a.evicted());
    const CUstream busy = new_stream();
    const CUstream other = new_stream();
    Gate interpreter;
    std::vector<std::unique_ptr<Buffer>> resident;
    for (std::uint32_t i = 0; i < 6; ++i) resident.push_back(std::make_unique<Buffer>(kBuffer, i));
    interpreter.hold_up(busy);
    for (const auto& buffer : resident) OK(cuMemsetD8Async, buffer->at(), 3, kBuffer, busy);
    std::atomic<bool> launched = false;
    std::thread watcher([&] {
        const std::string log = std::getenv("PROCESS_LOG");
        const auto said = [&] { return support::read_file(log).find("host callback") != std::string::npos; };
        while (!said() && !launched) std::this_thread::yield();
        EXPECT(!launched);
        interpreter.open();
    });
    EXPECT(launch("add", kWords, other, out.at(), a.at(), 1u, kWords) == CUDA_SUCCESS);
    launched = true;
    watcher.join();
    OK(cuStreamSynchronize, other);
    OK(cuStreamSynchronize, busy);
    EXPECT(out.read() == plus(pattern(kBuffer, 1), 1));
    for (const auto& buffer : resident) EXPECT(buffer->read() == std::vector<std::uint8_t>(kBuffer, 3));
}

TEST_CASE(
    "process: where memory is unmapped, a launch that waits for a callback says so, once, and waits on") {
    const std::string log = support::scratch_file("log");
    CHECK(run("process_lock_waits", Driver::Simulated,
              {{"SIMCUDA_HOST_VMM", "0"}, {"LMS_LOG", "warn:" + log}, {"PROCESS_LOG", log}})
              .failures == "");
    const std::string text = support::read_file(log);
    const auto first = text.find("host callback");
    REQUIRE(first != std::string::npos);
    CHECK(text.find("host callback", first + 1) == std::string::npos);
}
