// Trials of moves: what they tell of remaps, beside a program that works.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "tests/contract/driver_backend.h"

namespace lms::contract {
namespace {

using device::driver;
using device::Trust;

constexpr int kTimings = 50;  // with each speed of calls

// Sets, copies and host functions in streams of its own, sometimes waited for, while it lives.
class Busy {
  public:
    Busy(CUcontext context, std::uint32_t seed) : thread_([this, context, seed] { work(context, seed); }) {}
    ~Busy() {
        over_ = true;
        thread_.join();
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

  private:
    static constexpr std::size_t kBytes = 1 << 20;

    void work(CUcontext context, std::uint32_t seed) {
        std::mt19937 random(seed);
        driver().cuCtxSetCurrent(context);
        CUstream streams[3] = {};
        for (CUstream& stream : streams) driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
        CUdeviceptr memory = 0;
        driver().cuMemAlloc_v2(&memory, 2 * kBytes);
        while (!over_) {
            const CUstream stream = streams[random() % 3];
            switch (random() % 3) {
                case 0:
                    driver().cuMemcpyAsync(memory, memory + kBytes, kBytes, stream);
                    break;
                case 1:
                    driver().cuMemsetD8Async(memory + kBytes, 1, kBytes, stream);
                    break;
                default:
                    driver().cuLaunchHostFunc(stream, pause, reinterpret_cast<void*>(random() % 400));
            }
            if (random() % 4 == 0) driver().cuStreamSynchronize(stream);
        }
        for (const CUstream stream : streams) {
            driver().cuStreamSynchronize(stream);
            driver().cuStreamDestroy_v2(stream);
        }
        driver().cuMemFree_v2(memory);
    }
    static void CUDA_CB pause(void* microseconds) {
        std::this_thread::sleep_for(
            std::chrono::microseconds(reinterpret_cast<std::uintptr_t>(microseconds)));
    }

    std::atomic<bool> over_{false};
    std::thread thread_;
};

void beside_work(Port& port) {
    int told = 0;
    for (std::uint32_t seed = 0; seed < kTimings; ++seed) {
        const Busy busy(port.current_context(), seed);
        std::this_thread::sleep_for(std::chrono::microseconds(seed * 37 % 1000));
        const device::Trial trial = port.try_moves({});
        EXPECT((trial.trust == Trust::Moves || trial.trust == Trust::Unknown));
        told += trial.remaps_wait;
    }
    EXPECT(told == 0);
}

DRIVER_TEST("trial: remaps that wait for all work are found out", {{"SIMCUDA_UNMAP_DRAINS", "1"}}) {
    const device::Trial trial = backend.port().try_moves({});
    EXPECT(trial.trust == Trust::Moves);
    EXPECT(trial.remaps_wait);
}

DRIVER_TEST("trial: so are they where each call takes a while",
            {{"SIMCUDA_UNMAP_DRAINS", "1"}, {"SIMCUDA_VMM_US", "200"}, {"SIMCUDA_HOST_VMM", "0"}}) {
    EXPECT(backend.port().try_moves({}).remaps_wait);
}

DRIVER_TEST("trial: work beside remaps is not taken for what they wait for", {}) {
    beside_work(backend.port());
}
DRIVER_TEST("trial: nor where each call takes 100 us", {{"SIMCUDA_VMM_US", "100"}}) {
    beside_work(backend.port());
}
DRIVER_TEST("trial: nor where each call takes 1 ms", {{"SIMCUDA_VMM_US", "1000"}}) {
    beside_work(backend.port());
}
DRIVER_TEST("trial: nor where each call takes 3 ms",
            {{"SIMCUDA_VMM_US", "3000"}, {"SIMCUDA_HOST_VMM", "0"}}) {
    beside_work(backend.port());
}

}  // namespace
}  // namespace lms::contract
