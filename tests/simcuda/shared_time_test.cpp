// Processes on the same GPUs (SIMCUDA_SHARED), in the machine's time: links and multiprocessors are shared.
#include <algorithm>
#include <chrono>
#include <functional>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/processes.h"
#include "tools/simcuda/driver/shared/turns.h"

namespace {

using namespace sim;
namespace shared = simcuda::driver::shared;

// Seconds from when all are ready until all have done it.
double time_of_both(const std::function<void(const Kernels&)>& body) {
    std::vector<Channel> channels(2);
    std::vector<pid_t> others;
    for (const Channel& channel : channels) {
        others.push_back(fork_body([&] {
            const Gpu gpu;
            const Kernels kernels;
            Channel::send(channel.to_first, true);
            Channel::receive<bool>(channel.to_other);
            body(kernels);
        }));
    }
    for (const Channel& channel : channels) Channel::receive<bool>(channel.to_first);
    const auto begin = std::chrono::steady_clock::now();
    for (const Channel& channel : channels) Channel::send(channel.to_other, true);
    for (const pid_t other : others) join(other);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

SIM_TEST("shared: each direction of a link carries the copies of all processes",
         {{"SIMCUDA_H2D_GBPS", "0.1"}, {"SIMCUDA_D2H_GBPS", "0.1"}}) {
    const SharedGpus gpus;
    constexpr std::size_t kCopied = 8 << 20;
    // Of the last piece up to 0.2 ms are not waited for.
    constexpr double kBothCopied = 2 * kCopied / 0.1e9 - 0.001;
    static const auto data = pattern(kCopied, 1);
    const auto allocated_here = [] {
        CUdeviceptr p = 0;
        OK(cuMemAlloc, &p, kCopied);
        return p;
    };
    EXPECT(time_of_both([&](const Kernels&) { OK(cuMemcpyHtoD, allocated_here(), data.data(), kCopied); }) >=
           kBothCopied);
    EXPECT(time_of_both([&](const Kernels&) { read_back(allocated_here(), kCopied); }) >= kBothCopied);
}

SIM_TEST("shared: kernels of two processes take turns", {{"SIMCUDA_KERNEL_US", "5000"}}) {
    const SharedGpus gpus;
    EXPECT(time_of_both([](const Kernels& kernels) {
               CUdeviceptr p = 0;
               OK(cuMemAlloc, &p, 4);
               for (std::uint32_t i = 0; i < 20; ++i) LAUNCH(kernels["store"], 1, 1, nullptr, p, i);
               OK(cuCtxSynchronize);
           }) >= 2 * 20 * 0.005);
}

// A kernel that waits for the program, on one side; on the other some that do not.
void beside_a_waiting_kernel(bool killed) {
    const Channel channel;
    const pid_t other = fork_body([&] {
        const Gpu gpu;
        const Kernels kernels;
        void* word = nullptr;
        OK(cuMemHostAlloc, &word, 8, 0);
        const auto flag = reinterpret_cast<CUdeviceptr>(word);
        OK(cuMemsetD32, flag, 0, 2);
        LAUNCH(kernels["await"], 1, 1, nullptr, flag, flag + 4);
        Channel::send(channel.to_first, true);
        Channel::receive<bool>(channel.to_other);
        __atomic_store_n(static_cast<std::uint32_t*>(word), 7, __ATOMIC_RELEASE);
        OK(cuCtxSynchronize);
        EXPECT(static_cast<std::uint32_t*>(word)[1] == 7);
    });
    Channel::receive<bool>(channel.to_first);
    if (killed) kill(other);
    const Gpu gpu;
    const Kernels kernels;
    constexpr std::uint32_t kIncremented = 100'000;
    CUdeviceptr p = 0;
    OK(cuMemAlloc, &p, 4 * kIncremented);
    OK(cuMemsetD32, p, 0, kIncremented);
    for (int i = 0; i < 10; ++i)
        LAUNCH(kernels["increment"], kIncremented / 256 + 1, 256, nullptr, p, p, kIncremented);
    const auto bytes = read_back(p, 4 * kIncremented);
    const auto* words = reinterpret_cast<const std::uint32_t*>(bytes.data());
    EXPECT(std::all_of(words, words + kIncremented, [](std::uint32_t word) { return word == 10; }));
    if (killed) return reap(other);
    Channel::send(channel.to_other, true);
    join(other);
}

SIM_TEST("shared: a kernel that waits holds up no other process's", {}) {
    const SharedGpus gpus;
    beside_a_waiting_kernel(false);
}

SIM_TEST("shared: a kernel of a killed process holds up no other's", {}) {
    const SharedGpus gpus;
    beside_a_waiting_kernel(true);
}

// Slots that all are this process's, of which those at `busy` have kernels.
struct Turns {
    explicit Turns(std::initializer_list<std::size_t> busy) {
        const shared::Identity self = shared::own_identity();
        for (const std::size_t i : busy) {
            shared::Slot& slot = page.slots[i];
            slot.process = self.process;
            slot.started = self.started;
            slot.stack = self.stack;
            slot.kernels[0] = 1;
        }
    }
    bool take(std::size_t slot, std::uint64_t now) {
        return shared::take_turn(page, 0, page.slots[slot], now);
    }
    shared::Page page{};
};

TEST_CASE("shared: turns go round, each as long as a slice while others wait") {
    Turns turns({3, 5, 63});
    std::uint64_t now = 1'000'000'000;
    std::size_t had[64] = {};
    std::size_t holder = 64, switches = 0;
    for (int i = 0; i < 3000; ++i, now += shared::kSliceNs / 10) {
        std::size_t holders = 0;
        for (const std::size_t slot : {5, 63, 3}) {
            if (!turns.take(slot, now)) continue;
            ++holders;
            ++had[slot];
            switches += slot != holder;
            holder = slot;
        }
        CHECK(holders <= 1);  // none where it is passed to one that has looked
    }
    for (const std::size_t slot : {3, 5, 63}) CHECK(had[slot] >= 900);
    CHECK(switches == 300);
}

TEST_CASE("shared: a turn passes when its holder has no kernels, or has ended") {
    Turns turns({3, 5});
    std::uint64_t now = 1'000'000'000;
    while (!turns.take(3, ++now)) {
    }
    CHECK_FALSE(turns.take(5, now));
    turns.page.slots[3].kernels[0] = 0;
    CHECK(turns.take(5, now));
    turns.page.slots[3].kernels[0] = 1;
    CHECK_FALSE(turns.take(3, now));
    turns.page.slots[5].started = 1;  // of a process that is not there
    CHECK(turns.take(3, now + shared::kSliceNs));
    CHECK(turns.page.slots[5].process == 0);
    CHECK(turns.take(3, now + 9 * shared::kSliceNs));
}

}  // namespace
