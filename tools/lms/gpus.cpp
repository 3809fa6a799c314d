#include "tools/lms/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "shim/util/units.h"

namespace lms::tool {
namespace {

constexpr double kReached = 0.85;  // of a link's published speed

TargetGpu known(std::string_view id, const char* title, std::uint64_t gib, unsigned multiprocessors,
                double f32, double matrix, double bandwidth, double link) {
    return {.title = title,
            .memory_bytes = gib << 30,
            .in_bytes_per_s = kReached * link * 1e9,
            .out_bytes_per_s = kReached * link * 1e9,
            .speed = KernelSpeed{id, multiprocessors, f32 * 1e12, matrix * 1e12, bandwidth * 1e9}};
}

std::string lower(std::string_view text) {
    std::string copy(text);
    for (char& c : copy) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return copy;
}

// Whether `name` is those words, or those words and more.
bool begins_with_words(std::string_view name, std::string_view words) {
    if (!name.starts_with(words)) return false;
    const char next = name.size() > words.size() ? name[words.size()] : ' ';
    return next == ' ' || next == '-';
}

std::vector<std::string> parts_of(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        parts.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return parts;
}

// In 1e9 bytes a second; 0: it is none.
double link_speed(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool number = !text.empty() && text[0] >= '0' && text[0] <= '9' && *end == '\0';
    return number && value <= 1e5 ? value : 0;
}

}  // namespace

std::span<const TargetGpu> known_gpus() {
    static const std::vector<TargetGpu> gpus = {
#define GPU(id, title, memory, multiprocessors, f32, matrix, bandwidth, link) \
    known(#id, title, memory, multiprocessors, f32, matrix, bandwidth, link),
#include "tools/lms/gpus.def"
#undef GPU
    };
    return gpus;
}

const TargetGpu* find_gpu(std::string_view name) {
    std::string given = lower(name);
    for (const std::string_view word : {"nvidia ", "geforce ", "tesla "}) {
        if (given.starts_with(word)) given.erase(0, word.size());
    }
    const TargetGpu* best = nullptr;
    for (const TargetGpu& gpu : known_gpus()) {
        if (given == gpu.speed->id) return &gpu;
        // Of "RTX 4070" and "RTX 4070 Ti" the longer.
        if (begins_with_words(given, lower(gpu.title)) || begins_with_words(given, gpu.speed->id)) {
            if (!best || gpu.title.size() > best->title.size()) best = &gpu;
        }
    }
    return best;
}

std::optional<TargetGpu> parse_gpu(const std::string& text, std::string& problem) {
    const std::vector<std::string> parts = parts_of(text);
    const TargetGpu* const found = find_gpu(parts[0]);
    if (parts.size() == 1 && found) return *found;
    if (parts.size() == 1) {
        problem =
            fmt::format("--gpu={}: no GPU of that name is known; expected NAME,MEMORY,LINK, or one of", text);
        for (const TargetGpu& gpu : known_gpus()) problem += fmt::format(" {}", gpu.speed->id);
        return {};
    }
    const std::uint64_t memory = util::parse_bytes(parts[1]).value_or(0);
    const double in = parts.size() > 2 ? link_speed(parts[2]) : 0;
    const double out = parts.size() > 3 ? link_speed(parts[3]) : in;
    if (parts[0].empty() || parts.size() > 4 || memory == 0 || in <= 0 || out <= 0) {
        problem = fmt::format(
            "--gpu={}: expected NAME,MEMORY,LINK or NAME,MEMORY,LINK,LINK: a size such as 24G, and 1e9 bytes "
            "a second, to the GPU and from it",
            text);
        return {};
    }
    TargetGpu gpu = found ? *found : TargetGpu{};
    gpu.title = parts[0];
    gpu.memory_bytes = memory;
    gpu.in_bytes_per_s = in * 1e9;
    gpu.out_bytes_per_s = out * 1e9;
    return gpu;
}

}  // namespace lms::tool
