#include "shim/program/system_gpus.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>

#include "shim/util/small_file.h"

namespace lms::program {
namespace {

namespace fs = std::filesystem;

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// A vGPU's type is its name: "NVIDIA A40-48C", "GRID T4-2Q", "NVIDIA A100-1-5C". It ends in the size of its
// memory in GB and the letter of its series.
bool is_virtual(std::string_view model) {
    if (model.empty() || std::string_view("ABCQ").find(model.back()) == std::string_view::npos) return false;
    model.remove_suffix(1);
    const std::size_t dash = model.rfind('-');
    return dash != std::string_view::npos && dash + 1 < model.size() &&
           std::ranges::all_of(model.substr(dash + 1), is_digit);
}

// The model in /proc/driver/nvidia/gpus/ADDRESS/information.
std::string_view model_in(std::string_view information) {
    constexpr std::string_view kLabel = "Model:";
    const std::size_t at = information.find(kLabel);
    if (at == std::string_view::npos) return {};
    std::string_view model = information.substr(at + kLabel.size());
    model = model.substr(0, model.find('\n'));
    const std::size_t begin = model.find_first_not_of(" \t");
    return begin == std::string_view::npos ? std::string_view{}
                                           : model.substr(begin, model.find_last_not_of(" \t") + 1 - begin);
}

// By its PCI device number, "0x17c8" in sysfs. Pascal's are 15f0 to 15ff, and what is from 1b00 on is Pascal
// or newer.
bool is_before_pascal(std::string_view text) {
    if (!text.starts_with("0x")) return false;
    unsigned number = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), number, 16);
    return error == std::errc{} && number < 0x1b00 && (number < 0x15f0 || number > 0x15ff);
}

}  // namespace

bool may_lack_pools(const char* root) {
    const std::string base = root;
    std::error_code problem;
    for (fs::directory_iterator it(base + "/proc/driver/nvidia/gpus", problem), end; !problem && it != end;
         it.increment(problem)) {
        const std::string address = it->path().filename();
        if (is_virtual(model_in(util::small_file(it->path() / "information"))) ||
            is_before_pascal(util::small_file(base + "/sys/bus/pci/devices/" + address + "/device")))
            return true;
    }
    return false;
}

}  // namespace lms::program
