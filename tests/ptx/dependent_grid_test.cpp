// griddepcontrol: grids that let others begin before they have ended, and grids that wait for others to end.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

using exec::Outcome;

constexpr std::uint32_t kPoison = 0x5a5a5a5a;

std::string module_of(const std::string& body, const std::string& target = "sm_90",
                      const std::string& version = "7.8") {
    return fmt::format(R"(.version {}
.target {}
.address_size 64
.visible .entry k(.param .u64 early, .param .u64 late)
{{
    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<9>; .shared .align 4 .b32 word;
    ld.param.u64 %rd1, [early]; ld.param.u64 %rd2, [late];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r3, %r2, %r1;
    mul.wide.u32 %rd3, %r4, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
    mov.u32 %r5, 1; setp.eq.u32 %p1, %r1, 0; setp.lt.u32 %p2, %r1, 32;
    {}
    ret;
}})",
                       version, target, body);
}

// A word of each thread's that it stores before it lets go or waits, and one that it stores behind that.
struct Words {
    explicit Words(unsigned number) : count(number), early(4 * number), late(4 * number) {
        for (const DeviceMemory* words : {&early, &late})
            for (unsigned i = 0; i < count; ++i) words->as<std::uint32_t>()[i] = kPoison;
    }
    static unsigned at(const DeviceMemory& words, unsigned index) {
        return std::atomic_ref(words.as<std::uint32_t>()[index]).load();
    }
    bool all(const DeviceMemory& words, std::uint32_t value) const {
        for (unsigned i = 0; i < count; ++i)
            if (at(words, i) != value) return false;
        return true;
    }
    exec::Launch launch(const Module& module, unsigned blocks) const {
        exec::Launch launch = module.launch("k", pack(early.address(), late.address()));
        launch.grid[0] = blocks;
        launch.block[0] = count / blocks;
        return launch;
    }
    unsigned count;
    DeviceMemory early, late;
};

struct GridShape {
    const char* name;
    const char* begin;  // what has it run by loops, in steps or as fibers
};
constexpr GridShape kShapes[] = {
    {"loops", ""},
    {"steps", "bar.sync 0;"},
    {"fibers", "bar.sync 1;"},
};

constexpr char kStoreEarly[] = "st.global.u32 [%rd1], %r5;";
constexpr char kStoreLate[] = "st.global.u32 [%rd2], %r5;";

TEST_CASE("dependents: they are let go when the last block lets go, not when that has ended") {
    constexpr unsigned kBlocks = 5, kThreads = 40;
    for (const GridShape& shape : kShapes) {
        CAPTURE(shape.name);
        const Module module(module_of(
            fmt::format("{} {} griddepcontrol.launch_dependents; {}", shape.begin, kStoreEarly, kStoreLate)));
        CHECK(module.kernel("k").lets_dependents_go);
        CHECK_FALSE(module.kernel("k").waits_for_grids);
        const Words words(kBlocks * kThreads);
        exec::Launch launch = words.launch(module, kBlocks);
        unsigned times = 0, early = 0, late = 0;
        launch.on_let_go = [&] {
            ++times;
            for (unsigned i = 0; i < words.count; ++i) {
                early += Words::at(words.early, i) == 1;
                late += Words::at(words.late, i) == 1;
            }
        };
        REQUIRE(run(std::move(launch)).outcome == Outcome::Finished);
        CHECK(times == 1);
        CHECK(early >= (kBlocks - 1) * kThreads + 1);
        CHECK(late == (kBlocks - 1) * kThreads);
        CHECK(words.all(words.late, 1));
    }
}

TEST_CASE("dependents: blocks that end without letting go count as they end") {
    constexpr unsigned kBlocks = 6, kThreads = 32;
    const Module module(module_of(
        fmt::format("and.b32 %r6, %r3, 1; setp.eq.u32 %p3, %r6, 0; {} @%p3 griddepcontrol.launch_dependents; "
                    "@%p3 griddepcontrol.launch_dependents; {}",
                    kStoreEarly, kStoreLate)));
    const Words words(kBlocks * kThreads);
    exec::Launch launch = words.launch(module, kBlocks);
    unsigned times = 0;
    bool all = false;
    launch.on_let_go = [&] {
        ++times;
        all = words.all(words.late, 1);  // the last block does not let go
    };
    REQUIRE(run(std::move(launch)).outcome == Outcome::Finished);
    CHECK(times == 1);
    CHECK(all);
}

// Runs `launch` behind another, as long as `ready` is false of what it does before that has ended.
Outcome run_behind(exec::Launch launch, unsigned workers, const std::function<bool()>& ready,
                   const std::function<void()>& look) {
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    launch.behind.push_back(std::make_shared<std::atomic<bool>>(true));
    launch.behind.push_back(ended);
    Outcome outcome = Outcome::Timeout;
    std::thread thread([&] { outcome = run(std::move(launch), workers).outcome; });
    while (!ready()) std::this_thread::yield();
    look();
    ended->store(true);
    thread.join();
    return outcome;
}

TEST_CASE("dependents: every thread of every block comes to where it waits for grids, and no further") {
    constexpr unsigned kBlocks = 12, kThreads = 40;
    for (const GridShape& shape : kShapes) {
        CAPTURE(shape.name);
        const Module module(
            module_of(fmt::format("{} {} griddepcontrol.wait; {}", shape.begin, kStoreEarly, kStoreLate)));
        CHECK(module.kernel("k").waits_for_grids);
        for (const unsigned workers : {1u, 3u}) {
            const Words words(kBlocks * kThreads);
            const Outcome outcome = run_behind(
                words.launch(module, kBlocks), workers, [&] { return words.all(words.early, 1); },
                [&] { CHECK(words.all(words.late, kPoison)); });
            CHECK(outcome == Outcome::Finished);
            CHECK(words.all(words.late, 1));
        }
        const Words words(kBlocks * kThreads);
        CHECK(run(words.launch(module, kBlocks)).outcome == Outcome::Finished);  // behind nothing
        CHECK(words.all(words.late, 1));
    }
}

// Its first warp, or the first lane of that, stores for the others once it has waited.
TEST_CASE("dependents: the others of a block wait at their barrier for those that wait for grids") {
    constexpr unsigned kBlocks = 3, kThreads = 96;
    for (const std::string who : {"@%p1", "@%p2"}) {
        for (const std::string barrier : {"bar.sync 0;", "bar.sync 1;"}) {
            CAPTURE(who);
            CAPTURE(barrier);
            const Module module(
                module_of(fmt::format("@%p1 st.shared.u32 [word], 7; bar.sync 0; {} {} griddepcontrol.wait; "
                                      "@%p1 st.shared.u32 [word], 9; {} ld.shared.u32 %r5, [word]; {}",
                                      kStoreEarly, who, barrier, kStoreLate)));
            const Words words(kBlocks * kThreads);
            const Outcome outcome = run_behind(
                words.launch(module, kBlocks), 1, [&] { return words.all(words.early, 1); },
                [&] { CHECK(words.all(words.late, kPoison)); });
            CHECK(outcome == Outcome::Finished);
            CHECK(words.all(words.late, 9));
        }
    }
}

TEST_CASE("dependents: lanes of a warp wait at what they do together for one that waits for grids") {
    for (const char* begin : {"", "bar.sync 1;"}) {
        CAPTURE(begin);
        const Module module(
            module_of(fmt::format("{} {} @%p1 griddepcontrol.wait; @%p1 mov.u32 %r5, 9; "
                                  "shfl.sync.idx.b32 %r5, %r5, 0, 31, -1; {}",
                                  begin, kStoreEarly, kStoreLate)));
        const Words words(32);
        const Outcome outcome = run_behind(
            words.launch(module, 1), 1, [&] { return words.all(words.early, 1); },
            [&] { CHECK(words.all(words.late, kPoison)); });
        CHECK(outcome == Outcome::Finished);
        CHECK(words.all(words.late, 9));
    }
}

TEST_CASE("dependents: a cluster waits at its barrier for a block that waits for grids") {
    constexpr unsigned kBlocks = 4, kThreads = 32;
    const Module module(
        module_of(fmt::format("setp.eq.u32 %p4, %r3, 0; {} @%p4 griddepcontrol.wait; barrier.cluster.arrive; "
                              "barrier.cluster.wait; {}",
                              kStoreEarly, kStoreLate)));
    const Words words(kBlocks * kThreads);
    exec::Launch launch = words.launch(module, kBlocks);
    launch.cluster[0] = kBlocks;
    // Some turns of the blocks that wait for the first one.
    unsigned looks = 0;
    const Outcome outcome = run_behind(
        std::move(launch), 1, [&] { return words.all(words.early, 1) && ++looks > 1000; },
        [&] { CHECK(words.all(words.late, kPoison)); });
    CHECK(outcome == Outcome::Finished);
    CHECK(words.all(words.late, 1));
}

TEST_CASE("dependents: threads that look at memory go on while others of their block wait for grids") {
    // The last thread waits for a word that the host stores once the first has come to wait for grids.
    const Module module(module_of(
        fmt::format("setp.eq.u32 %p5, %r1, 63; {} @%p1 griddepcontrol.wait; @!%p5 bra STORE;\n"
                    "SPIN: ld.volatile.global.u32 %r6, [%rd1]; setp.ne.u32 %p6, %r6, 2; @%p6 bra SPIN;\n"
                    "STORE: {}",
                    kStoreEarly, kStoreLate)));
    const Words words(64);
    const Outcome outcome = run_behind(
        words.launch(module, 1), 1,
        [&] {
            if (!words.all(words.early, 1)) return Words::at(words.late, 63) == 1;
            std::atomic_ref(words.early.as<std::uint32_t>()[63]).store(2);
            return false;
        },
        [&] { CHECK(Words::at(words.late, 0) == kPoison); });
    CHECK(outcome == Outcome::Finished);
    CHECK(words.all(words.late, 1));
}

std::string refusal(const std::string& text) {
    try {
        const Module module(text);
        return "";
    } catch (const std::runtime_error& error) {
        return error.what();
    }
}

// As ptxas has it, for the whole module.
TEST_CASE("dependents: code for GPUs and of versions that have no griddepcontrol is refused") {
    for (const std::string action : {"launch_dependents", "wait"}) {
        const std::string body = fmt::format("griddepcontrol.{};", action);
        for (const char* target : {"sm_75", "sm_89", "compute_80"})
            CHECK(refusal(module_of(body, target)).find("requires .target sm_90 or higher") !=
                  std::string::npos);
        CHECK(refusal(module_of(body, "sm_90", "7.7")).find("requires PTX ISA .version 7.8 or later") !=
              std::string::npos);
        for (const char* target : {"sm_90", "sm_90a", "compute_90", "sm_100f"})
            CHECK(refusal(module_of(body, target, "8.6")) == "");
    }
    CHECK(refusal(module_of("", "sm_75")) == "");
    // And what is no instruction is refused when it is used.
    for (const std::string wrong :
         {"griddepcontrol", "griddepcontrol.launch_dependents.wait", "griddepcontrol.wait 3"}) {
        const Module module(module_of(wrong + ";"));
        CHECK(module.kernel("k").unsupported == wrong.substr(0, wrong.find(' ')));
    }
}

}  // namespace
}  // namespace simcuda::testing
