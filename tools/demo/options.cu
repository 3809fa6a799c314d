#include "options.h"

#include <cstdlib>

namespace demo {

const char* const kHelp =
    "usage: demo [options] TEXT...\n"
    "\n"
    "Trains a character-level language model on the given text files with CUDA: n-gram\n"
    "embeddings, two wide hidden layers, softmax; Adam. Every run with the same options\n"
    "gives the same losses, bit for bit.\n"
    "\n"
    "  --memory SIZE   GPU memory the model is made for: parameters, gradients, moments\n"
    "                  and activations; with a suffix K, M or G (default 96M)\n"
    "  --steps N       training steps (default 120)\n"
    "  --losses FILE   write each step's loss, a hexadecimal float a line\n"
    "  --leave SIZE    train nothing; hold all free GPU memory but SIZE until standard\n"
    "                  input ends, to make a GPU small for another process\n"
    "  --help          this text\n"
    "\n"
    "Exit status: 0 done, 1 out of GPU memory, 2 usage, 3 any other error.\n";

namespace {

UsageError bad_value(const std::string& option, const std::string& value, const std::string& accepted) {
    return UsageError(option + ": '" + value + "' is not " + accepted);
}

// The digits at the start of `text`, as a number from 1 to `largest`; 0 when there are none or it is out of
// range. `rest` is what follows them.
std::size_t leading_number(const std::string& text, std::size_t largest, std::string& rest) {
    std::size_t value = 0, used = 0;
    for (; used < text.size() && text[used] >= '0' && text[used] <= '9'; ++used) {
        value = value * 10 + static_cast<std::size_t>(text[used] - '0');
        if (value > largest) return 0;
    }
    rest = text.substr(used);
    return value;
}

std::size_t parse_size(const std::string& option, const std::string& text) {
    std::string suffix;
    const std::size_t value = leading_number(text, std::size_t{1} << 32, suffix);
    const std::size_t shift = std::string(" KMG").find(suffix.empty() ? ' ' : suffix[0]);
    if (value == 0 || suffix.size() > 1 || shift == std::string::npos) {
        throw bad_value(option, text, "a size such as 96M or 4G");
    }
    return value << (10 * shift);
}

int parse_steps(const std::string& option, const std::string& text) {
    constexpr std::size_t kMost = 1000000;
    std::string rest;
    const std::size_t value = leading_number(text, kMost, rest);
    if (value == 0 || !rest.empty())
        throw bad_value(option, text, "a number from 1 to " + std::to_string(kMost));
    return static_cast<int>(value);
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word == "--help" || word == "-h") {
            options.help = true;
            return options;
        }
        if (word.size() < 2 || word[0] != '-') {
            options.texts.push_back(word);
            continue;
        }
        const bool known = word == "--memory" || word == "--steps" || word == "--losses" || word == "--leave";
        if (!known) throw UsageError("unknown option " + word);
        if (i + 1 == argc) throw UsageError(word + ": a value must follow");
        const std::string value = argv[++i];
        if (word == "--memory") options.memory = parse_size(word, value);
        if (word == "--steps") options.steps = parse_steps(word, value);
        if (word == "--losses") options.losses = value;
        if (word == "--leave") options.leave = parse_size(word, value);
    }
    if (options.texts.empty() && options.leave == 0) throw UsageError("no text given");
    return options;
}

}  // namespace demo
