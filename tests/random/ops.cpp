#include "tests/random/ops.h"

#include <fstream>
#include <sstream>

namespace rnd {

namespace {

struct Form {
    const char* name;
    unsigned arguments;
};

constexpr unsigned words_in(const char* text) {
    unsigned count = *text ? 1 : 0;
    for (; *text; ++text) count += *text == ' ';
    return count;
}

constexpr Form kForms[] = {
#define VERB(name, arguments) {#name, words_in(arguments)},
#include "tests/random/ops.def"
#undef VERB
};

}  // namespace

const char* name_of(Verb verb) {
    return kForms[static_cast<unsigned>(verb)].name;
}

std::string print(const Op& op) {
    const Form& form = kForms[static_cast<unsigned>(op.verb)];
    std::string line = std::to_string(op.thread) + " " + form.name;
    for (unsigned i = 0; i < form.arguments; ++i) line += " " + std::to_string(op.a[i]);
    return line;
}

bool parse(const std::string& line, Op& op) {
    std::istringstream text(line);
    unsigned thread = 0;
    std::string name;
    if (!(text >> thread >> name) || thread >= kThreads) return false;
    op = {};
    op.thread = static_cast<std::uint8_t>(thread);
    for (unsigned verb = 0; verb < std::size(kForms); ++verb) {
        if (name != kForms[verb].name) continue;
        op.verb = static_cast<Verb>(verb);
        for (unsigned i = 0; i < kForms[verb].arguments; ++i) {
            if (!(text >> op.a[i])) return false;
        }
        return (text >> std::ws).eof();
    }
    return false;
}

bool parse_program(const std::string& path, Program& program, std::string& problem) {
    std::ifstream file(path);
    if (!file) problem = path + ": cannot be read";
    for (std::string line; std::getline(file, line) && problem.empty();) {
        if (line.empty() || line[0] == '#') continue;
        program.emplace_back();
        if (!parse(line, program.back())) problem = path + ": not an operation: " + line;
    }
    return problem.empty();
}

std::uint32_t hash(const Op& op, std::uint32_t salt) {
    std::uint32_t h = (static_cast<std::uint32_t>(op.verb) * 31 + op.thread) ^ (salt * 0x85EBCA6Bu);
    for (const std::uint32_t a : op.a) h = (h ^ a) * 0x9E3779B1u + (h >> 15);
    return h ^ (h >> 16);
}

bool is_kernel(const Op& op) {
    return op.verb == Verb::mix || op.verb == Verb::packed || op.verb == Verb::add ||
           (op.verb == Verb::set && op.a[4] == 0);
}

}  // namespace rnd
