// Processes on the same GPUs (SIMCUDA_SHARED), in simulated time: one clock for all, and figures that repeat.
#include <chrono>
#include <functional>
#include <random>

#include "tests/simcuda/kernels.h"
#include "tests/simcuda/processes.h"

namespace {

using namespace sim;

constexpr std::size_t kMegabyte = 1'000'000;  // a millisecond of the link's

std::uint64_t now_of_gpu() {
    return reinterpret_cast<std::uint64_t (*)()>(symbol("simcuda_now_ns"))();
}

void spend_ms(std::uint64_t ms) {
    reinterpret_cast<void (*)(std::uint64_t)>(symbol("simcuda_spend_ns"))(ms * 1'000'000);
}

// What one of several processes has to do with.
struct Tenant {
    explicit Tenant(const Channel& to_parent) : parent(to_parent) {
        OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        OK(cuMemAlloc, &device, kMegabyte);
        OK(cuMemHostAlloc, &host, kMegabyte, 0);
    }
    ~Tenant() {
        if (!told) tell_end();
        CU(cuDevicePrimaryCtxRelease)(gpu.device);  // its memory is the others' from here on
    }
    void tell_end() {
        told = true;
        Channel::send(parent.to_first, now_of_gpu());
    }
    void up() { OK(cuMemcpyHtoDAsync, device, host, kMegabyte, stream); }
    void down() { OK(cuMemcpyDtoHAsync, host, device, kMegabyte, stream); }
    void kernel() { LAUNCH(kernels["store"], 1, 1, stream, device, 1u); }
    void wait() { OK(cuStreamSynchronize, stream); }

    const Channel& parent;
    bool told = false;
    Gpu gpu;
    Kernels kernels;
    CUstream stream = nullptr;
    CUdeviceptr device = 0;
    void* host = nullptr;
};

using Body = std::function<void(Tenant&)>;

// When each has ended, of processes that begin together.
std::vector<std::uint64_t> ends_of(const std::vector<Body>& bodies) {
    const SharedGpus gpus;
    ::setenv("SIMCUDA_PROCESSES", std::to_string(bodies.size()).c_str(), 1);
    std::vector<Channel> channels(bodies.size());
    std::vector<pid_t> tenants;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
        tenants.push_back(fork_body([&] {
            Tenant tenant(channels[i]);
            bodies[i](tenant);
        }));
    }
    std::vector<std::uint64_t> ends;
    for (const Channel& channel : channels) ends.push_back(Channel::receive<std::uint64_t>(channel.to_first));
    for (const pid_t tenant : tenants) join(tenant);
    return ends;
}

// Within some calls' time.
bool is_ms(std::uint64_t ns, double ms) {
    return static_cast<double>(ns) > ms * 1e6 && static_cast<double>(ns) < ms * 1e6 + 0.2e6;
}

const Environment kClock{{"SIMCUDA_CLOCK", "simulated"},
                         {"SIMCUDA_H2D_GBPS", "1"},
                         {"SIMCUDA_D2H_GBPS", "1"},
                         {"SIMCUDA_KERNEL_US", "5000"}};

#define SHARED_CLOCK_TEST(name) SHARED_CLOCK_TEST_(name, SIM_NAME(shared_clock_body_, __LINE__))
#define SHARED_CLOCK_TEST_(name, body)         \
    static void body();                        \
    TEST_CASE(name) {                          \
        CHECK(::sim::run(kClock, body) == ""); \
    }                                          \
    static void body()

SHARED_CLOCK_TEST("shared clock: kernels of two processes take turns, one's run beside each other") {
    const Body ten = [](Tenant& tenant) {
        for (int i = 0; i < 10; ++i) tenant.kernel();
        tenant.wait();
    };
    const auto alone = ends_of({ten});
    EXPECT(is_ms(alone[0], 50));
    const auto two = ends_of({ten, ten});
    EXPECT(is_ms(two[0], 95) && is_ms(two[1], 100));
    const auto beside = ends_of({[](Tenant& tenant) {
        CUstream second = nullptr;
        OK(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
        for (int i = 0; i < 10; ++i) {
            tenant.kernel();
            LAUNCH(tenant.kernels["store"], 1, 1, second, tenant.device, 1u);
        }
        OK(cuCtxSynchronize);
    }});
    EXPECT(is_ms(beside[0], 50));
}

SHARED_CLOCK_TEST(
    "shared clock: copies of all share a direction of the link, and what is queued is not first") {
    const Body many = [](Tenant& tenant) {
        for (int i = 0; i < 20; ++i) tenant.up();
        tenant.wait();
    };
    // It begins when the other has queued all of its own.
    const Body late = [](Tenant& tenant) {
        spend_ms(5);
        for (int i = 0; i < 5; ++i) tenant.up();
        tenant.wait();
    };
    const Body away = [](Tenant& tenant) {
        for (int i = 0; i < 20; ++i) tenant.down();
        tenant.wait();
    };
    const auto ends = ends_of({many, late, away});
    EXPECT(is_ms(ends[0], 25) && is_ms(ends[1], 15) && is_ms(ends[2], 20));
}

// Called each millisecond, of which it takes a quarter.
struct TestHelper {
    static std::uint64_t help(void* self) {
        static_cast<TestHelper*>(self)->times.push_back(now_of_gpu());
        reinterpret_cast<void (*)(std::uint64_t)>(symbol("simcuda_wait_ns"))(250'000);
        return 750'000;
    }
    void is_set(bool helps) {
        using Set = void(std::uint64_t(*)(void*), void*);
        reinterpret_cast<Set*>(symbol("simcuda_help"))(helps ? help : nullptr, this);
    }
    std::vector<std::uint64_t> times;
};

SHARED_CLOCK_TEST(
    "shared clock: a helper works while its program thinks, in the order of time, and no other time") {
    const Body beside = [](Tenant& tenant) {
        for (int i = 0; i < 4; ++i) tenant.kernel();
        tenant.wait();
    };
    const auto ends = ends_of({[](Tenant& tenant) {
                                   TestHelper helper;
                                   helper.is_set(true);
                                   const std::uint64_t begin = now_of_gpu();
                                   tenant.kernel();
                                   tenant.wait();
                                   EXPECT(helper.times.empty());
                                   const std::uint64_t thinks = now_of_gpu();
                                   spend_ms(10);
                                   EXPECT(now_of_gpu() - thinks == 10'000'000);
                                   EXPECT(helper.times.size() == 10);
                                   for (std::size_t i = 0; i < helper.times.size(); ++i)
                                       EXPECT(helper.times[i] - thinks == i * 1'000'000);
                                   helper.is_set(false);
                                   spend_ms(10);
                                   EXPECT(helper.times.size() == 10);
                                   EXPECT(now_of_gpu() - begin > 25'000'000);
                               },
                               beside});
    EXPECT(ends[0] > 25'000'000);
}

// Something else on every machine.
void burn(std::uint64_t us) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
    while (std::chrono::steady_clock::now() < until) {
    }
}

// A program of copies, kernels, questions, waits, thinking and memory; `noise` is of the machine alone.
Body program(unsigned seed, unsigned noise) {
    return [=](Tenant& tenant) {
        std::mt19937 random(seed), machine(noise);
        std::vector<CUdeviceptr> held;
        for (int i = 0; i < 150; ++i) {
            if (machine() % 4 == 0) burn(machine() % 1500);
            switch (random() % 8) {
                case 0:
                    tenant.up();
                    break;
                case 1:
                    tenant.down();
                    break;
                case 2:
                    tenant.kernel();
                    break;
                case 3:
                    tenant.wait();
                    break;
                case 4:
                    while (CU(cuStreamQuery)(tenant.stream) == CUDA_ERROR_NOT_READY) {
                    }
                    break;
                case 5:
                    spend_ms(random() % 7);
                    break;
                case 6: {
                    CUdeviceptr p = 0;
                    // Whether there is room decides what it does.
                    if (CU(cuMemAlloc)(&p, 3'000'000) != CUDA_SUCCESS)
                        spend_ms(1);
                    else
                        held.push_back(p);
                    break;
                }
                default:
                    if (held.empty()) break;
                    OK(cuMemFree, held.back());
                    held.pop_back();
            }
        }
        tenant.wait();
    };
}

SHARED_CLOCK_TEST("shared clock: figures repeat, whatever the machine does meanwhile") {
    ::setenv("SIMCUDA_MEMORY", "16M", 1);
    for (unsigned seed = 0; seed < 4; ++seed) {
        std::vector<std::uint64_t> first;
        for (unsigned noise = 0; noise < 4; ++noise) {
            std::vector<Body> programs;
            for (unsigned i = 0; i < 2 + seed % 2; ++i)
                programs.push_back(program(10 * seed + i, 10 * noise + i));
            const auto ends = ends_of(programs);
            if (noise == 0) first = ends;
            EXPECT(ends == first);
        }
    }
}

SHARED_CLOCK_TEST(
    "shared clock: memory changes hands in order of time, whichever process the machine is about") {
    ::setenv("SIMCUDA_MEMORY", "16M", 1);
    for (const bool slow : {false, true}) {
        for (const bool exits : {false, true}) {
            const auto ends = ends_of({[=](Tenant& tenant) {
                                           CUdeviceptr p = 0;
                                           OK(cuMemAlloc, &p, 10'000'000);
                                           spend_ms(10);
                                           if (slow) burn(50'000);
                                           tenant.tell_end();
                                           if (exits) std::exit(0);
                                           OK(cuMemFree, p);
                                       },
                                       [=](Tenant&) {
                                           CUdeviceptr p = 0;
                                           spend_ms(9);
                                           if (!slow) burn(50'000);
                                           FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc, &p, 10'000'000);
                                           spend_ms(2);
                                           OK(cuMemAlloc, &p, 10'000'000);
                                       }});
            EXPECT(is_ms(ends[0], 10) && is_ms(ends[1], 11));
        }
    }
}

SHARED_CLOCK_TEST(
    "shared clock: who waits outside of the driver holds up none, and comes back at their time") {
    const Channel channel;
    const auto ends = ends_of({[&](Tenant& tenant) {
                                   for (int i = 0; i < 4; ++i) tenant.kernel();
                                   tenant.wait();
                                   Channel::send(channel.to_other, true);
                               },
                               [&](Tenant& tenant) {
                                   tenant.kernel();
                                   Channel::receive<bool>(channel.to_other);
                                   tenant.kernel();
                                   tenant.wait();
                               }});
    EXPECT(is_ms(ends[0], 25) && is_ms(ends[1], 30));
}

SHARED_CLOCK_TEST("shared clock: who is killed holds up none, at whatever moment") {
    for (unsigned seed = 0; seed < 20; ++seed) {
        const SharedGpus gpus;
        const Channel channel, other_channel;
        ::setenv("SIMCUDA_PROCESSES", "2", 1);
        const pid_t victim = fork_body([&] {
            Tenant tenant(channel);
            for (;;) program(seed, seed)(tenant);
        });
        const pid_t other = fork_body([&] {
            Tenant tenant(other_channel);
            Channel::send(channel.to_first, true);
            for (int i = 0; i < 20; ++i) {
                tenant.up();
                tenant.kernel();
                tenant.wait();
            }
        });
        Channel::receive<bool>(channel.to_first);
        ::usleep(std::mt19937(seed)() % 30'000);
        kill(victim);
        join(other);
        reap(victim);
    }
}

}  // namespace
