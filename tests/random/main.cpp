// Runs random programs: those of a range of seeds, or one from a file. A line for each says what the driver
// answered (a digest) and whether all was right.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/random/look.h"
#include "tests/random/machine.h"

using namespace rnd;

namespace {

struct Arguments {
    std::uint64_t first = 1, last = 0;
    unsigned count = 200;
    std::string file;
    bool print = false;
    bool all_codes = false;
    Options options;
    std::string without;
    unsigned patience_ms = 10;  // then gates open by themselves
    unsigned failures = 0;      // calls that may fail and be made again
    bool again = false;         // a program that fails is run once more, in new contexts
    unsigned hang_s = 30;
    unsigned look_every = 0;  // programs; 0: never
};

bool read_arguments(int argc, char** argv, Arguments& arguments) {
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        const char* const value = i + 1 < argc ? argv[i + 1] : "";
        if (name == "--seeds") {
            if (std::sscanf(value, "%lu-%lu", &arguments.first, &arguments.last) != 2) return false;
            ++i;
        } else if (name == "--ops") {
            arguments.count = static_cast<unsigned>(std::atoi(argv[++i]));
        } else if (name == "--file") {
            arguments.file = argv[++i];
        } else if (name == "--print") {
            arguments.print = true;
        } else if (name == "--codes") {
            arguments.all_codes = true;
        } else if (name == "--no-hidden") {
            arguments.options.hidden = false;
        } else if (name == "--no-sections") {
            arguments.options.sections = false;
        } else if (name == "--parts") {
            arguments.options.parts = true;
        } else if (name == "--scarce") {
            arguments.options.scarce = true;
        } else if (name == "--without") {
            arguments.without = std::string(",") + argv[++i] + ",";
        } else if (name == "--no-behind") {
            arguments.options.behind = false;
        } else if (name == "--failures") {
            arguments.failures = static_cast<unsigned>(std::atoi(argv[++i]));
            arguments.options.own = false;  // but for --own: what fails is known by its position
        } else if (name == "--own") {
            arguments.options.own = true;
        } else if (name == "--again") {
            arguments.again = true;
        } else if (name == "--room") {
            arguments.options.room = static_cast<std::uint32_t>(std::atoi(argv[++i]));
        } else if (name == "--look-every") {
            arguments.look_every = static_cast<unsigned>(std::atoi(argv[++i]));
        } else if (name == "--hang") {
            arguments.hang_s = static_cast<unsigned>(std::atoi(argv[++i]));
        } else {
            return false;
        }
    }
    return true;
}

// Opens gates where nothing gets on, as another thread of the program would in the end; ends what hangs.
void watch(const std::stop_token& stop, Machine& machine, const Arguments& arguments) {
    using Clock = std::chrono::steady_clock;
    std::uint64_t seen = machine.progress();
    auto since = Clock::now();
    while (!stop.stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(arguments.patience_ms) / 2);
        if (machine.progress() != seen) {
            seen = machine.progress();
            since = Clock::now();
            continue;
        }
        const auto still = Clock::now() - since;
        if (still > std::chrono::milliseconds(arguments.patience_ms)) machine.open_gates();
        if (still > std::chrono::seconds(arguments.hang_s)) {
            std::printf("hangs%s\n", machine.standing_at().c_str());
            std::fflush(stdout);
            std::_Exit(3);
        }
    }
}

std::uint64_t digest(const std::vector<std::uint32_t>& codes) {
    std::uint64_t sum = 0xCBF29CE484222325ull;
    for (const std::uint32_t code : codes) sum = (sum ^ code) * 0x100000001B3ull;
    return sum;
}

int run(Machine& machine, const Program& program, const std::string& name, bool all_codes) {
    std::printf("%s ", name.c_str());
    std::fflush(stdout);
    std::vector<std::uint32_t> codes;
    const std::string problem = machine.run(program, codes);
    if (all_codes) {
        std::printf("\n");
        for (std::size_t i = 0; i < codes.size(); ++i) {
            if (codes[i]) std::printf("%zu %s: %u\n", i, print(program[i]).c_str(), codes[i] - 1);
        }
    }
    if (problem.empty()) {
        std::printf("%016lx %zu\n", digest(codes), program.size());
        return 0;
    }
    std::printf("fails: %s\n", problem.c_str());
    return 1;
}

// The program of a seed, without the kinds of operations that are to be left out.
Program program_of(std::uint64_t seed, const Arguments& arguments) {
    Program program = generate(seed, arguments.count);
    std::erase_if(program, [&](const Op& op) {
        return arguments.without.find("," + std::string(name_of(op.verb)) + ",") != std::string::npos;
    });
    return program;
}

int run_all(Machine& machine, const Program& program, const Arguments& arguments) {
    if (!arguments.file.empty()) return run(machine, program, arguments.file, arguments.all_codes);
    int status = 0;
    for (std::uint64_t seed = arguments.first; seed <= arguments.last && status == 0; ++seed) {
        status = run(machine, program_of(seed, arguments), std::to_string(seed), arguments.all_codes);
        if (arguments.look_every == 0 || seed % arguments.look_every != 0) continue;
        std::printf("look %s\n", look().c_str());
        std::fflush(stdout);
    }
    return status;
}

class Watch {
  public:
    Watch(Machine& machine, const Arguments& arguments)
        : thread_([&](const std::stop_token& stop) { watch(stop, machine, arguments); }) {}

  private:
    std::jthread thread_;
};

// In contexts of its own, which end with it.
int run_apart(const Program& program, const Arguments& arguments) {
    Machine machine(arguments.options);
    const Watch watch(machine, arguments);
    return run_all(machine, program, arguments);
}

int print_program(const Program& program) {
    for (const Op& op : program) std::printf("%s\n", print(op).c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    if (!read_arguments(argc, argv, arguments)) {
        std::fprintf(stderr,
                     "%s: --seeds A-B | --file PROGRAM [--ops N] [--print] [--codes] [--no-hidden] "
                     "[--no-sections] [--parts] [--scarce] [--hang S] "
                     "[--failures N [--own] [--again]] [--look-every N]\n",
                     argv[0]);
        return 2;
    }
    Program program;
    if (!arguments.file.empty()) {
        std::string problem;
        if (!parse_program(arguments.file, program, problem)) {
            std::fprintf(stderr, "%s\n", problem.c_str());
            return 2;
        }
    }
    if (arguments.print) {
        return print_program(arguments.file.empty() ? program_of(arguments.first, arguments) : program);
    }
    if (arguments.failures == 0) {
        Machine machine(arguments.options);
        const Watch watch(machine, arguments);
        const int status = run_all(machine, program, arguments);
        std::printf("  longest %s\n", longest_call().c_str());
        std::fflush(stdout);
        std::_Exit(status);
    }
    allow_failures(arguments.failures);
    int status = run_apart(program, arguments);
    if (status != 0 && arguments.again) status = run_apart(program, arguments);
    std::printf("again%s\n", failures().c_str());
    return status;
}
