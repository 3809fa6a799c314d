// lms plan: GPUs by name, recorded steps, and what is planned of them.
#include "tools/lms/plan.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/support/scratch.h"
#include "tools/lms/recorded_step.h"
#include "tools/simcuda/driver/identity.h"

using namespace lms::tool;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// The file is gone with `scratch`.
std::string step_file(const ::Scratch& scratch, const std::string& lines) {
    scratch.put("step.txt", "# a step\n# n: images\n# precision: f32\n" + lines);
    return scratch.path("step.txt");
}

// Weights that stay; activations that the second half of the step needs again.
std::string layers(int count) {
    std::ostringstream text;
    for (int i = 0; i < count; ++i) text << "P " << i << " 33554432\n";
    for (int i = 0; i < count; ++i)
        text << "A " << 100 + i << " 67108864n\nK forward 1000000000000 " << i << ' ' << 100 + i << "\n";
    for (int i = count; i-- > 0;)
        text << "K backward 1000000000000 " << i << ',' << 100 + i << ' ' << i << "\nF " << 100 + i << "\n";
    return text.str();
}

Planned plan_of(const std::string& path, std::uint64_t n, const std::string& gpu) {
    std::string problem;
    const Workload load = read_step(path, n, problem);
    REQUIRE_MESSAGE(problem.empty(), problem);
    const auto on = parse_gpu(gpu, problem);
    REQUIRE_MESSAGE(on, problem);
    return plan_on(load, *on, {.context_bytes = 0, .speed = {}});
}

}  // namespace

TEST_CASE("plan: GPUs are known by id, by title, and by the driver's name") {
    for (const char* name : {"rtx4090", "RTX 4090", "NVIDIA GeForce RTX 4090"}) {
        REQUIRE(find_gpu(name) != nullptr);
        CHECK(find_gpu(name)->memory_bytes == std::uint64_t{24} << 30);
    }
    CHECK(find_gpu("NVIDIA A100-SXM4-40GB")->speed->id == "a100");
    CHECK(find_gpu("Tesla V100-SXM2-16GB")->speed->id == "v100");
    CHECK(find_gpu("NVIDIA L40S")->speed->id == "l40s");
    for (const char* name : {"", "T400", "NVIDIA T400", "GeForce RTX 40900", "Simulated GPU"})
        CHECK(find_gpu(name) == nullptr);
}

TEST_CASE("plan: a GPU is a name, or a name with memory and links") {
    std::string problem;
    const auto own = parse_gpu("mine,1.5G,10,5", problem);
    REQUIRE(own);
    CHECK(own->title == "mine");
    CHECK(own->memory_bytes == 1536 * kMiB);
    CHECK(own->in_bytes_per_s == 10e9);
    CHECK(own->out_bytes_per_s == 5e9);
    CHECK_FALSE(own->speed);
    const auto half = parse_gpu("h100,40G,54", problem);
    REQUIRE(half);
    CHECK(half->speed->id == "h100");
    CHECK(half->out_bytes_per_s == 54e9);
    for (const char* text : {"", "nothing", "x,1G", "x,1G,0", "x,1G,fast", "x,0,10", "x,1G,10,10,10",
                             ",1G,10", "x,1G,10GB", "x,1G,-3", "x,1G,inf"}) {
        CAPTURE(text);
        problem.clear();
        CHECK_FALSE(parse_gpu(text, problem));
        CHECK(problem.starts_with("--gpu=" + std::string(text) + ": "));
        CHECK(problem.find("expected") != problem.npos);
        CHECK(problem.find('\n') == problem.npos);
    }
}

TEST_CASE("plan: the table and the simulated GPU have the same figures") {
    std::ifstream lines("tools/simcuda/driver/gpus.def");
    REQUIRE(lines);
    int found = 0;
    for (std::string line; std::getline(lines, line);) {
        char id[32];
        double multiprocessors = 0, f32 = 0, memory = 0;
        if (std::sscanf(line.c_str(), "GPU(%31[a-z0-9], %lf, %lf, %lf", id, &multiprocessors, &f32,
                        &memory) != 4)
            continue;
        ++found;
        const std::string name = id == std::string("a100") ? "a100_40" : id;
        CAPTURE(name);
        REQUIRE(find_gpu(name) != nullptr);
        const KernelSpeed& speed = *find_gpu(name)->speed;
        CHECK(speed.multiprocessors == multiprocessors);
        CHECK(speed.f32_per_s == doctest::Approx(f32 * 1e12));
        CHECK(speed.bytes_per_s == doctest::Approx(memory * 1e9));
    }
    CHECK(found == 4);
}

TEST_CASE("plan: a step that fits takes its kernels' time; with less memory it moves, and takes longer") {
    const ::Scratch scratch;
    const std::string path = step_file(scratch, layers(8));
    // Eight times 32 and 64 MiB.
    const Planned whole = plan_of(path, 1, "v100,1G,10");
    CHECK(whole.fits);
    CHECK(whole.buffer_bytes == 768 * kMiB);
    CHECK(whole.bytes_in + whole.bytes_out == 0);
    CHECK(whole.host_bytes == 0);
    CHECK(whole.slowdown() == doctest::Approx(1));
    // 60 % of 15.7e12 operations a second; a call of the program's behind each.
    CHECK(whole.seconds == doctest::Approx(16e12 / (0.6 * 15.7e12)).epsilon(0.01));
    const Planned half = plan_of(path, 1, "v100,448M,1");
    CHECK_FALSE(half.fits);
    CHECK(half.bytes_in > 0);
    CHECK(half.bytes_out > 0);
    CHECK(half.host_bytes >= 768 * kMiB - 448 * kMiB);
    CHECK(half.fitting_seconds == doctest::Approx(whole.seconds));
    const Planned slow = plan_of(path, 1, "v100,448M,0.1");
    CHECK(slow.slowdown() > half.slowdown());
    CHECK(slow.slowdown() > 1.5);
    CHECK(plan_of(path, 2, "v100,1G,10").buffer_bytes == 1280 * kMiB);
    CHECK_FALSE(plan_of(path, 2, "v100,1G,10").fits);
}

TEST_CASE("plan: the smallest GPU is the one with least memory that loses less than 10 %") {
    std::vector<Planned> rows(3);
    const double slowdowns[] = {1.2, 1.05, 1.0};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i].has_room = true;
        rows[i].gpu.memory_bytes = (i + 1) << 30;
        rows[i].seconds = slowdowns[i];
        rows[i].fitting_seconds = 1;
    }
    CHECK(smallest(rows) == &rows[1]);
    rows[1].has_room = false;
    CHECK(smallest(rows) == &rows[2]);
    rows[2].seconds = kMostSlowdown;
    CHECK(smallest(rows) == nullptr);
}

TEST_CASE("plan: what a GPU held that is not managed is as the trace tells, whatever the budget was") {
    const auto load_of = [](std::string_view gpu, std::optional<std::uint64_t> unmanaged) {
        auto trace = std::make_unique<Trace>();
        static const lms::trace::Piece pieces[] = {{0, 4 * kMiB, true}};
        static const lms::trace::Touched touched[] = {{0, 0}};
        trace->events = {lms::trace::Gpu{0, gpu, 1024 * kMiB, 2 * kMiB, true, 1},
                         lms::trace::Allocation{0, 0, 0x1000, 4 * kMiB, 2, {}, pieces},
                         lms::trace::Residency{0, 4 * kMiB, 0, 3, 100 * kMiB},  // a limit was lowered
                         lms::trace::Launch{0, "kernel", 0, touched, 4, 5}};
        if (unmanaged) {
            trace->events.emplace_back(lms::trace::Unmanaged{0, *unmanaged, 6});
            trace->events.emplace_back(lms::trace::Unmanaged{0, 10 * kMiB, 7});
        }
        std::string problem;
        Workload load = workload_of(std::move(trace), problem);
        REQUIRE_MESSAGE(problem.empty(), problem);
        return load;
    };
    const Workload real = load_of("NVIDIA A100-SXM4-40GB", 600 * kMiB);
    CHECK(real.unmanaged_bytes == 600 * kMiB);
    CHECK(real.has_context);
    const Workload simulated = load_of(simcuda::driver::kDeviceName, 60 * kMiB);
    CHECK(simulated.unmanaged_bytes == 60 * kMiB);
    CHECK_FALSE(simulated.has_context);
    // An earlier trace: all that was not filled, less the reserve of a 64th.
    CHECK(load_of("Simulated GPU", {}).unmanaged_bytes == (1024 - 100 - 16) * kMiB);
}

TEST_CASE("plan: what is wrong with a recorded step is told with its line") {
    const auto problem_of = [](const std::string& lines) {
        const ::Scratch scratch;
        std::string problem;
        read_step(step_file(scratch, lines), 1, problem);
        return problem;
    };
    CHECK(problem_of("P 0 5\nX 1\n").find("step.txt:5: expected a line P, A, F or K") != std::string::npos);
    CHECK(problem_of("P 0 5\nK k 1 0 7\n").find(":5: a kernel uses a tensor that is not there") !=
          std::string::npos);
    CHECK(problem_of("F 3\n").find(":4: a tensor is freed that is not there") != std::string::npos);
    CHECK(problem_of("P 0 5x\n").find(":4: \"5x\" is no number") != std::string::npos);
    CHECK(problem_of("P 0 99999999999999999999\n").find("is no number") != std::string::npos);
    CHECK(problem_of("P 0 5\n").find("no kernels") != std::string::npos);
    const ::Scratch scratch;
    CHECK(size_of_step(step_file(scratch, "")) == "images");
    CHECK(size_of_step("README.md").empty());
}
