// One allocation larger than the GPU, which the program divides itself.
#include <doctest/doctest.h>

#include "tests/e2e/programs.h"

using namespace e2e;

namespace {

constexpr std::uint64_t kPool = 4 << 20;

Run check(const std::string& memory, const std::vector<std::string>& how, const Environment& environment) {
    std::vector<std::string> arguments{"divided", "4"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Run run = run_shimmed(arguments, memory, environment);
    CHECK_MESSAGE(run.status == 0, run.err);
    CHECK(run.out == "ok\n");
    CHECK(run.violations == 0);
    return run;
}

// By the simulated GPU's own clock.
Run timed(const std::string& steps, const std::string& reads, const std::string& code,
          const std::string& mapped) {
    std::vector<std::string> how{steps, reads, code};
    if (!mapped.empty()) how.push_back(mapped);
    return check("2M", how,
                 {{"SIMCUDA_CLOCK", "simulated"},
                  {"SIMCUDA_KERNEL_US", "20"},
                  {"SIMCUDA_H2D_GBPS", "1"},
                  {"SIMCUDA_D2H_GBPS", "1"}});
}

std::uint64_t moved(const std::string& steps, const std::string& reads, const std::string& mapped) {
    return timed(steps, reads, "hidden", mapped).stats.at("bytes_in");
}

}  // namespace

TEST_CASE("divided: its contents are right however little of it fits") {
    for (const char* mapped : {"", "mapped"}) {
        for (const char* memory : {"3M", "2M", "1M"}) {
            for (const char* safety : {"args", "opaque", "strict"}) {
                for (const char* code : {"shown", "hidden"}) {
                    CAPTURE(mapped);
                    CAPTURE(memory);
                    CAPTURE(safety);
                    CAPTURE(code);
                    std::vector<std::string> how{"3", "4", code};
                    if (*mapped) how.push_back(mapped);
                    check(memory, how, {{"LMS_SAFETY", safety}});
                }
            }
        }
    }
}

TEST_CASE("divided: tensors that kernels show move like allocations") {
    for (const char* mapped : {"", "mapped"}) {
        CAPTURE(mapped);
        const Run run = timed("8", "1", "shown", mapped);
        CHECK(run.stats.at("bytes_in") > kPool);
        CHECK(run.stats.at("in_place_launches") == 0);
    }
}

TEST_CASE("divided: what is read once stays where it is, what is read often comes in") {
    for (const char* mapped : {"", "mapped"}) {
        CAPTURE(mapped);
        // Of eight more steps, each of which names all of it twice.
        const std::uint64_t once = moved("16", "1", mapped) - moved("8", "1", mapped);
        const std::uint64_t often = moved("16", "64", mapped) - moved("8", "64", mapped);
        CHECK(once < kPool);
        CHECK(often > 8 * kPool);
    }
}
