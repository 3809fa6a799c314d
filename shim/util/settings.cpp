#include "shim/util/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <utility>

#include "shim/util/frameworks.h"

namespace lms {
namespace {

constexpr std::string_view kMemInfoNames[] = {"physical", "enlarged"};
constexpr std::string_view kSafetyNames[] = {"args", "opaque", "strict"};
constexpr std::string_view kHostMappingNames[] = {"auto", "on", "off"};
constexpr std::string_view kCheckNames[] = {"0", "1"};
constexpr std::string_view kSizeAccepted = "a size in bytes, or with suffix K, M, G or T";

// The parsers below return false for a text they do not accept and then leave their target alone.

bool parse_size(std::string_view text, std::uint64_t plain_unit, std::optional<std::uint64_t>& target) {
    const auto bytes = util::parse_bytes(text, plain_unit);
    if (bytes) target = bytes;
    return bytes.has_value();
}

bool parse_limit(std::string_view text, std::optional<std::uint64_t>& target) {
    std::optional<std::uint64_t> bytes;
    if (!parse_size(text, 1, bytes) || *bytes == 0) return false;
    target = bytes;
    return true;
}

// std::from_chars, unlike its elders, does not depend on the program's locale.
bool parse_share(std::string_view text, std::optional<double>& target) {
    double share = 0;
    const char* const end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, share);
    if (error != std::errc{} || next != end || !(share >= 0 && share <= 1)) return false;
    target = share;
    return true;
}

template <typename Enum, std::size_t count>
bool parse_choice(std::string_view text, const std::string_view (&names)[count], Enum& target) {
    const auto found = std::find(std::begin(names), std::end(names), text);
    if (found == std::end(names)) return false;
    target = static_cast<Enum>(found - std::begin(names));
    return true;
}

// Names between commas; "none" means no name.
bool parse_names(std::string_view text, std::vector<std::string>& target) {
    std::vector<std::string> names;
    while (text != "none") {
        const std::size_t comma = text.find(',');
        if (comma == 0 || text.empty()) return false;
        names.emplace_back(text.substr(0, comma));
        if (comma == text.npos) break;
        text.remove_prefix(comma + 1);
    }
    target = std::move(names);
    return true;
}

bool parse_log(std::string_view text, Settings& settings) {
    const std::size_t colon = text.find(':');
    const auto level = log::parse_level(text.substr(0, colon));
    if (!level || colon + 1 == text.size()) return false;
    settings.log_level = *level;
    settings.log_path = colon == text.npos ? "" : text.substr(colon + 1);
    return true;
}

bool parse_text(std::string_view text, std::string& target) {
    target = text;
    return true;
}

std::string show_size(std::optional<std::uint64_t> bytes) {
    return bytes ? util::format_bytes(*bytes) : "";
}

std::string show_share(std::optional<double> share) {
    return share ? fmt::format("{}", *share) : "";
}

constexpr Setting kTable[] = {
    {"LMS_THRESHOLD", "threshold", "SIZE", "2M",
     "Allocations smaller than this go to the real allocator and never move",
     "a size in KiB, or with suffix B, K, M, G or T",
     [](std::string_view text, Settings& s) {
         std::optional<std::uint64_t> bytes;
         if (!parse_size(text, util::kKiB, bytes)) return false;
         s.threshold_bytes = *bytes;
         return true;
     },
     [](const Settings& s) { return show_size(s.threshold_bytes); }},
    {"LMS_FRAC", "frac", "SHARE", "1, or 0.9 with lms",
     "Share of the GPU budget below which nothing is evicted; 0 evicts from the start",
     "a number from 0 to 1", [](std::string_view text, Settings& s) { return parse_share(text, s.frac); },
     [](const Settings& s) { return show_share(s.frac); }},
    {"LMS_LIMIT", "limit", "SIZE", "none", "GPU memory the shim may fill",
     "a size in bytes above 0, or with suffix K, M, G or T",
     [](std::string_view text, Settings& s) { return parse_limit(text, s.limit_bytes); },
     [](const Settings& s) { return show_size(s.limit_bytes); }},
    {"LMS_RESERVE", "reserve", "SIZE", "chosen from the size of the GPU",
     "GPU memory left free for the driver: modules, local memory, graphs", kSizeAccepted,
     [](std::string_view text, Settings& s) { return parse_size(text, 1, s.reserve_bytes); },
     [](const Settings& s) { return show_size(s.reserve_bytes); }},
    {"LMS_HOST_LIMIT", "host-limit", "SIZE",
     "80 % of available memory or cgroup headroom, whichever is smaller",
     "Host memory the shim may pin, for each GPU", kSizeAccepted,
     [](std::string_view text, Settings& s) { return parse_size(text, 1, s.host_limit_bytes); },
     [](const Settings& s) { return show_size(s.host_limit_bytes); }},
    {"LMS_SOFT_LIMIT", "soft-limit", "SIZE", "none",
     "Beyond this, each step of growth fails one allocation, so that a caching allocator gives back what "
     "it caches",
     "a size in bytes above 0, or with suffix K, M, G or T",
     [](std::string_view text, Settings& s) { return parse_limit(text, s.soft_limit_bytes); },
     [](const Settings& s) { return show_size(s.soft_limit_bytes); }},
    {"LMS_SHARE", "share", "TERMS", "weight=1",
     "How it shares a GPU with other processes under the shim: its weight, what is kept for it, its priority",
     "weight=1 to 1000, min=SIZE, priority=0 to 100, with commas between, or off",
     [](std::string_view text, Settings& s) {
         const auto terms = util::parse_share_terms(text);
         if (terms) s.share = *terms;
         return terms.has_value();
     },
     [](const Settings& s) { return util::format_share_terms(s.share); }},
    {"LMS_SHARE_DIR", "share-dir", "FOLDER", "that of the live pages",
     "Where processes that share GPUs find each other: a folder of one user's that each container mounts",
     "the absolute path of a folder",
     [](std::string_view text, Settings& s) {
         return text.starts_with('/') && parse_text(text, s.share_folder);
     },
     [](const Settings& s) { return s.share_folder; }},
    {"LMS_MEMINFO", "meminfo", "WHICH", "physical",
     "How much memory the program sees: the GPU alone, or with the host limit added", "physical or enlarged",
     [](std::string_view text, Settings& s) { return parse_choice(text, kMemInfoNames, s.meminfo); },
     [](const Settings& s) { return std::string(kMemInfoNames[static_cast<int>(s.meminfo)]); }},
    {"LMS_FRAMEWORKS", "frameworks", "NAMES", "auto",
     "Which frameworks a Python program finds set up to allocate each tensor by itself: those known to be "
     "good, none, or these",
     util::kFrameworksAccepted,
     [](std::string_view text, Settings& s) {
         return util::frameworks_of(text).has_value() && parse_text(text, s.frameworks);
     },
     [](const Settings& s) { return s.frameworks; }},
    {"LMS_SAFETY", "safety", "LEVEL", "opaque",
     "Which unfinished work keeps memory from moving: what names it, also what may reach it, or any",
     "args, opaque or strict",
     [](std::string_view text, Settings& s) { return parse_choice(text, kSafetyNames, s.safety); },
     [](const Settings& s) { return std::string(kSafetyNames[static_cast<int>(s.safety)]); }},
    {"LMS_HOST_MAPPING", "host-mapping", "WHEN", "auto",
     "Whether evicted memory stays addressable: if a trial apart from the program shows that it can, on, "
     "or off",
     "auto, on or off",
     [](std::string_view text, Settings& s) { return parse_choice(text, kHostMappingNames, s.host_mapping); },
     [](const Settings& s) { return std::string(kHostMappingNames[static_cast<int>(s.host_mapping)]); }},
    {"LMS_RETAIN", "retain", "0|1", "1",
     "Whether what nothing can have written since it came in is not copied out again; it stays in host "
     "memory meanwhile, as far as there is room",
     "0 or 1", [](std::string_view text, Settings& s) { return parse_choice(text, kCheckNames, s.retain); },
     [](const Settings& s) { return std::string(kCheckNames[s.retain ? 1 : 0]); }},
    {"LMS_CHECK", "check", "", "0",
     "Watch that evicted memory comes back as it went, and that nothing reaches it meanwhile", "0 or 1",
     [](std::string_view text, Settings& s) { return parse_choice(text, kCheckNames, s.check); },
     [](const Settings& s) { return std::string(kCheckNames[s.check ? 1 : 0]); }},
    {"LMS_EXEMPT", "exempt", "NAMES", "libnccl,libnvshmem,libucs,libuct,libucp",
     "Libraries whose allocations are left alone, by how their file names begin",
     "file names or beginnings of them, between commas, or none",
     [](std::string_view text, Settings& s) { return parse_names(text, s.exempt); },
     [](const Settings& s) {
         return s.exempt.empty() ? "none" : fmt::format("{}", fmt::join(s.exempt, ","));
     }},
    {"LMS_POLICY", "policy", "NAME", "next-use", "What is evicted, and when: a built-in policy or a plugin",
     "next-use, lru, lms or the path of a plugin",
     [](std::string_view text, Settings& s) { return parse_text(text, s.policy); },
     [](const Settings& s) { return s.policy; }},
    {"LMS_LOG", "log", "LEVEL[:FILE]", "warn", "How much to say, on stderr or into a file (%p: process)",
     "off, error, warn, info or debug, optionally with :FILE", parse_log,
     [](const Settings& s) {
         const auto level = log::kLevelNames[static_cast<int>(s.log_level)];
         return s.log_path.empty() ? std::string(level) : fmt::format("{}:{}", level, s.log_path);
     }},
    {"LMS_STATS", "stats", "FILE", "none",
     "Write counters as JSON, each second and when the program exits (%p: process)", "the path of a file",
     [](std::string_view text, Settings& s) { return parse_text(text, s.stats_path); },
     [](const Settings& s) { return s.stats_path; }},
    {"LMS_TRACE", "trace", "FILE", "none", "Write a trace, for lms report and lms export (%p: process)",
     "the path of a file", [](std::string_view text, Settings& s) { return parse_text(text, s.trace_path); },
     [](const Settings& s) { return s.trace_path; }},
    {"LMS_TRACE_SIZE", "trace-size", "SIZE", "none",
     "Begin another file of a trace, FILE.1, FILE.2 and so on, when one is so large",
     "a size in bytes above 0, or with suffix K, M, G or T",
     [](std::string_view text, Settings& s) { return parse_limit(text, s.trace_file_bytes); },
     [](const Settings& s) { return show_size(s.trace_file_bytes); }},
    {"LMS_DRIVER", "driver", "FILE", "searched as the dynamic loader does", "The real CUDA driver library",
     "the path of a library",
     [](std::string_view text, Settings& s) { return parse_text(text, s.driver_path); },
     [](const Settings& s) { return s.driver_path; }},
};

// Insertions, deletions and replacements that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row[b.size()];
}

constexpr std::string_view kPrefix = "LMS_";

std::string upper_case(std::string_view text) {
    std::string upper(text);
    for (char& letter : upper)
        letter = letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
    return upper;
}

// A program with more rights than its user (set-uid) takes no word from the user: secure_getenv gives none.
Settings read_environment() {
    std::vector<std::string> problems;
    Settings settings = parse_settings(secure_getenv, problems);
    log::configure(settings.log_level, settings.log_path);
    for (const std::string& problem : problems) log::warn("{}", problem);
    for (const std::string& problem : unknown_variables(environ)) log::warn("{}", problem);
    return settings;
}

}  // namespace

std::vector<std::string> default_exempt() {
    return {"libnccl", "libnvshmem", "libucs", "libuct", "libucp"};
}

std::span<const Setting> settings_table() {
    return kTable;
}

std::string refusal(const Setting& setting, std::string_view name, std::string_view value) {
    return fmt::format("{}={}: expected {}", name, value, setting.accepted);
}

Settings parse_settings(const Getter& getter, std::vector<std::string>& problems) {
    Settings settings;
    for (const Setting& setting : kTable) {
        const char* const value = getter(setting.variable.data());
        if (value == nullptr || *value == '\0' || setting.parse(value, settings)) continue;
        problems.push_back(refusal(setting, setting.variable, value) + "; using the default, " +
                           std::string(setting.fallback));
    }
    return settings;
}

std::vector<std::string> unknown_variables(const char* const* environment) {
    std::vector<std::string> problems;
    for (; environment != nullptr && *environment != nullptr; ++environment) {
        const std::string_view entry = *environment;
        const std::string_view name = entry.substr(0, entry.find('='));
        if (!name.starts_with(kPrefix)) continue;
        if (std::ranges::find(kTable, name, &Setting::variable) != std::end(kTable)) continue;
        const std::string upper = upper_case(name);
        const auto distance = [&upper](const Setting& setting) {
            return edit_distance(upper, setting.variable);
        };
        const auto nearest = std::ranges::min_element(kTable, {}, distance);
        // One that shares less than half of its letters is not what was meant.
        const bool near = 2 * distance(*nearest) <= name.size() - kPrefix.size();
        problems.push_back(fmt::format(
            "{} is not a setting; {}", name,
            near ? fmt::format("the nearest is {}", nearest->variable) : "`lms settings` lists them"));
    }
    return problems;
}

const Settings& settings() noexcept {
    // Never destroyed: the program's threads may still call while the process exits.
    static const Settings* const of_process = []() noexcept -> const Settings* {
        try {
            return new Settings(read_environment());
        } catch (...) {
            static const Settings defaults;
            return &defaults;
        }
    }();
    return *of_process;
}

}  // namespace lms
