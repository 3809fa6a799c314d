// Processes on the same GPUs (SIMCUDA_SHARED): whose memory is whose, and what is left when one is killed.
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "tests/simcuda/processes.h"
#include "tests/simcuda/vmm.h"
#include "tools/simcuda/driver/shared/page.h"

namespace {

using namespace sim;
namespace shared = simcuda::driver::shared;

constexpr std::size_t kMeg = 1 << 20;

CUdeviceptr allocated(std::size_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAlloc, &address, bytes);
    return address;
}

SIM_TEST("shared: memory is all processes', and each has its own bytes",
         {{"SIMCUDA_MEMORY", "64M"}, {"SIMCUDA_CONTEXT_BYTES", "8M"}}) {
    const SharedGpus gpus;
    const Channel channel;
    const auto other = fork_body([&] {
        const Gpu gpu;
        const CUdeviceptr p = allocated(20 * kMeg);
        const auto data = pattern(20 * kMeg, 1);
        OK(cuMemcpyHtoD, p, data.data(), data.size());
        Channel::send(channel.to_first, free_bytes());
        Channel::receive<bool>(channel.to_other);
        EXPECT(read_back(p, data.size()) == data);
        OK(cuMemFree, p);
        Channel::send(channel.to_first, free_bytes());
        Channel::receive<bool>(channel.to_other);
    });
    EXPECT(Channel::receive<std::size_t>(channel.to_first) <= 36 * kMeg);
    const Gpu gpu;
    const std::size_t free = free_bytes();
    EXPECT(free <= 28 * kMeg && free > 27 * kMeg);
    CUdeviceptr p = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, 28 * kMeg + 1);
    p = allocated(27 * kMeg);
    const auto data = pattern(27 * kMeg, 2);
    OK(cuMemcpyHtoD, p, data.data(), data.size());
    const CUmemAllocationProp properties = on_device();
    CUmemGenericAllocationHandle handle = 0;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &handle, kGranule, &properties, 0);
    Channel::send(channel.to_other, true);
    const auto without = Channel::receive<std::size_t>(channel.to_first);
    EXPECT(without == free_bytes());
    OK(cuMemCreate, &handle, 20 * kMeg, &properties, 0);
    EXPECT(free_bytes() == without - 20 * kMeg);
    Channel::send(channel.to_other, true);
    join(other);
    EXPECT(free_bytes() >= without - 12 * kMeg);  // its context's is there too
    EXPECT(read_back(p, data.size()) == data);
}

SIM_TEST("shared: each device has memory of its own, and the host's page-locked memory is one",
         {{"SIMCUDA_MEMORY", "64M"}, {"SIMCUDA_DEVICES", "2"}, {"SIMCUDA_HOST_MEMORY", "64M"}}) {
    const SharedGpus gpus;
    const Channel channel;
    const auto other = fork_body([&] {
        const Gpu gpu;
        allocated(40 * kMeg);
        void* host = nullptr;
        OK(cuMemHostAlloc, &host, 40 * kMeg, 0);
        Channel::send(channel.to_first, true);
        Channel::receive<bool>(channel.to_other);
    });
    Channel::receive<bool>(channel.to_first);
    const Gpu gpu;
    CUdeviceptr p = 0;
    void* host = nullptr;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, 30 * kMeg);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc, &host, 30 * kMeg, 0);
    OK(cuMemHostAlloc, &host, 20 * kMeg, 0);
    CUcontext second = nullptr;
    OK(cuDevicePrimaryCtxRetain, &second, 1);
    OK(cuCtxSetCurrent, second);
    allocated(60 * kMeg);
    Channel::send(channel.to_other, true);
    join(other);
    OK(cuMemHostAlloc, &host, 40 * kMeg, 0);
}

// A process with the driver that looks when it is asked to. Others may be forked beside it, whose parent has
// no driver yet.
struct Witness {
    Witness() {
        process = fork_body([&] {
            const Gpu gpu;
            Channel::send(channel.to_first, free_bytes());
            while (Channel::receive<bool>(channel.to_other)) {
                const std::size_t free = free_bytes();
                // It can be had, to the last page.
                if (free >= 4096) OK(cuMemFree, allocated(free / 4096 * 4096));
                Channel::send(channel.to_first, free);
            }
        });
        alone = Channel::receive<std::size_t>(channel.to_first);
    }
    ~Witness() {
        Channel::send(channel.to_other, false);
        join(process);
    }
    std::size_t look() const {
        Channel::send(channel.to_other, true);
        return Channel::receive<std::size_t>(channel.to_first);
    }
    Channel channel;
    pid_t process = 0;
    std::size_t alone = 0;  // bytes free while it is alone
};

// Takes and gives back until it is killed.
[[noreturn]] void churn(unsigned seed) {
    std::mt19937 random(seed);
    const Gpu gpu;
    std::vector<CUdeviceptr> held;
    for (;;) {
        CUdeviceptr p = 0;
        if (random() % 2 == 0 && CU(cuMemAlloc)(&p, 1 + random() % (2 * kMeg)) == CUDA_SUCCESS)
            held.push_back(p);
        if (held.empty() || random() % 2 == 0) continue;
        std::swap(held[random() % held.size()], held.back());
        OK(cuMemFree, held.back());
        held.pop_back();
    }
}

SIM_TEST("shared: what killed processes had is the others', at whatever moment they are killed",
         {{"SIMCUDA_MEMORY", "64M"}, {"SIMCUDA_DELAY_US", "0"}}) {
    const SharedGpus gpus;
    const Witness witness;
    for (unsigned seed = 0; seed < 40; ++seed) {
        const pid_t first = fork_body([&] { churn(2 * seed); });
        const pid_t second = fork_body([&] { churn(2 * seed + 1); });
        ::usleep(std::mt19937(seed)() % 20'000);
        kill(first);
        kill(second);
        // Also while nobody has waited for them: all of their threads have ended by then.
        siginfo_t ended{};
        for (const pid_t each : {first, second})
            EXPECT(::waitid(P_PID, static_cast<id_t>(each), &ended, WEXITED | WNOWAIT) == 0);
        EXPECT(witness.look() == witness.alone);
        reap(first);
        reap(second);
    }
}

SIM_TEST("shared: what a program had is the others' when another takes its place in the process",
         {{"SIMCUDA_MEMORY", "64M"}}) {
    const SharedGpus gpus;
    const Witness witness;
    const Channel channel;
    const pid_t other = fork_body([&] {
        const Gpu gpu;
        allocated(30 * kMeg);
        Channel::send(channel.to_first, true);
        ::execl("/bin/sleep", "sleep", "100", nullptr);
    });
    Channel::receive<bool>(channel.to_first);
    while (witness.look() != witness.alone) {
    }
    kill(other);
    reap(other);
}

SIM_TEST("shared: what a process has stays its own when its main thread ends before others",
         {{"SIMCUDA_MEMORY", "64M"}}) {
    const SharedGpus gpus;
    const Witness witness;
    const Channel channel;
    const pid_t other = fork_body([&] {
        const Gpu gpu;
        allocated(30 * kMeg);
        std::thread([&, main = ::pthread_self()] {
            ::pthread_join(main, nullptr);
            Channel::send(channel.to_first, true);
            Channel::receive<bool>(channel.to_other);
        }).detach();
        ::syscall(SYS_exit, 0);  // of this thread alone
    });
    Channel::receive<bool>(channel.to_first);
    EXPECT(witness.look() < witness.alone - 30 * kMeg);
    kill(other);
    reap(other);
    EXPECT(witness.look() == witness.alone);
}

SIM_TEST("shared: a process that is killed with the page's lock holds up none", {{"SIMCUDA_MEMORY", "64M"}}) {
    const SharedGpus gpus;
    const Witness witness;
    for (int i = 0; i < 3; ++i) {
        const pid_t other = fork_body([] {
            shared::join();
            new shared::PageLock;
            ::raise(SIGKILL);
        });
        reap(other);
        EXPECT(witness.look() == witness.alone);
    }
}

SIM_TEST("shared: who joins takes its slot with the page's lock", {{"SIMCUDA_MEMORY", "64M"}}) {
    const SharedGpus gpus;
    const Channel channel, with_joiner;
    const auto locker = fork_body([&] {
        shared::join();
        const auto processes = [] {
            return std::ranges::count_if(shared::page()->slots,
                                         [](const shared::Slot& slot) { return slot.process != 0; });
        };
        {
            // As one that has found another's process ended, and is about to free its slot.
            const shared::PageLock lock;
            Channel::send(channel.to_first, true);
            Channel::receive<bool>(channel.to_other);
            ::usleep(100'000);
            EXPECT(processes() == 1);
        }
        Channel::receive<bool>(channel.to_other);
        EXPECT(processes() == 2);
    });
    Channel::receive<bool>(channel.to_first);
    const auto joiner = fork_body([&] {
        Channel::send(with_joiner.to_first, true);
        const Gpu gpu;
        allocated(kMeg);
        Channel::send(with_joiner.to_first, true);
        Channel::receive<bool>(with_joiner.to_other);
    });
    Channel::receive<bool>(with_joiner.to_first);
    Channel::send(channel.to_other, true);
    Channel::receive<bool>(with_joiner.to_first);
    Channel::send(channel.to_other, true);
    join(locker);
    Channel::send(with_joiner.to_other, true);
    join(joiner);
}

// A page file with these bytes, of this mode: what a process says that is to join it. It has its own GPUs.
std::string refusal(const std::string& bytes, mode_t mode = 0600) {
    const Scratch scratch;
    scratch.put("page", bytes);
    ::chmod(scratch.path("page").c_str(), mode);
    std::string said;
    static std::string file;
    file = scratch.path("page");
    CHECK(run(
              {{"SIMCUDA_MEMORY", "64M"}},
              [] {
                  ::setenv("SIMCUDA_SHARED", file.c_str(), 1);
                  const Gpu gpu;
                  OK(cuMemFree, allocated(60 * kMeg));
              },
              &said) == "");
    CHECK(std::count(said.begin(), said.end(), '\n') == (said.empty() ? 0 : 1));
    CHECK(scratch.get("page").size() >= bytes.size());
    const std::string begin = "simcuda: SIMCUDA_SHARED=" + file + " ";
    CHECK(said.substr(0, begin.size()) == begin.substr(0, said.size()));
    return said.empty() ? said : said.substr(begin.size());
}

// What a process leaves that was alone.
std::string left_page() {
    static std::string file;
    const Scratch scratch;
    file = scratch.path("page");
    CHECK(run({{"SIMCUDA_MEMORY", "64M"}}, [] {
              ::setenv("SIMCUDA_SHARED", file.c_str(), 1);
              const Gpu gpu;
              allocated(kMeg);
          }) == "");
    return scratch.get("page");
}

TEST_CASE("shared: a file that is no page of this version, owner and mode is refused in one line") {
    const std::string end = "; this process has GPUs of its own\n", page = left_page();
    CHECK(refusal("hello") == "is not a page of this driver's" + end);
    CHECK(refusal(std::string(100'000, 'x')) == "is not a page of this driver's" + end);
    CHECK(refusal(page.substr(0, 40)) == "has another size than its version" + end);
    CHECK(refusal(page + "x") == "has another size than its version" + end);
    std::string other = page;
    other[8] = 9;
    CHECK(refusal(other) == "is of version 9, not 1" + end);
    CHECK(refusal(page, 0640) == "may be used by other users (mode 0600 is expected)" + end);
    CHECK(refusal(page) == "");
    CHECK(refusal("") == "");
}

TEST_CASE("shared: a page on which nobody is left is begun anew, whatever is in it") {
    std::string page = left_page();
    std::mt19937 random(1);
    for (std::size_t i = 16; i < page.size(); ++i) page[i] = static_cast<char>(random());
    CHECK(refusal(page) == "");
}

SIM_TEST("shared: a process with other GPUs than those on the page has its own",
         {{"SIMCUDA_MEMORY", "64M"}}) {
    const SharedGpus gpus;
    const Witness witness;
    const pid_t other = fork_body([] {
        ::setenv("SIMCUDA_MEMORY", "32M", 1);
        ::close(STDERR_FILENO);
        const Gpu gpu;
        OK(cuMemFree, allocated(30 * kMeg));
    });
    join(other);
    EXPECT(witness.look() == witness.alone);
}

}  // namespace
