// Every environment variable of the shim: its type, unit, default, and what it means, in one place. The table
// drives parsing, the options of `lms run` and what `lms settings` prints.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/util/log.h"
#include "shim/util/share_terms.h"
#include "shim/util/units.h"

namespace lms {

// What cuMemGetInfo and cuDeviceTotalMem report: the GPU as it is, or with the host memory the shim may use
// added.
enum class MemInfo : std::uint8_t { Physical, Enlarged };

// Which unfinished work keeps a chunk from moving.
enum class Safety : std::uint8_t {
    Args,    // work that names the chunk in its arguments
    Opaque,  // that, and any launch whose arguments do not tell what it reaches
    Strict,  // any work at all
};

// Whether evicted memory stays addressable, in host memory: where a probe in a process of its own has shown
// that it can, where one in this process does, or never.
enum class HostMapping : std::uint8_t { Auto, On, Off };

// NCCL, NVSHMEM and UCX.
std::vector<std::string> default_exempt();

// Optional fields are empty when the variable is unset; what that means is said beside each.
struct Settings {
    std::uint64_t threshold_bytes = 2 * util::kMiB;  // smaller allocations go to the real allocator
    std::optional<double> frac;                      // 0 to 1; empty: the policy's own start of eviction
    std::optional<std::uint64_t> limit_bytes;        // GPU memory the shim may fill; empty: all there is
    std::optional<std::uint64_t> reserve_bytes;  // GPU memory left to the driver; empty: the engine decides
    std::optional<std::uint64_t> host_limit_bytes;  // see util::host_limit_bytes()
    std::optional<std::uint64_t> soft_limit_bytes;  // beyond it an allocation fails once; empty: none does
    util::ShareTerms share;                         // with other processes on a GPU
    std::string share_folder;                       // of the pages for that; empty: of the live pages
    HostMapping host_mapping = HostMapping::Auto;
    bool retain = true;  // host copies of what nothing has written since
    // Whether it matters which work writes what: host copies are good for as long as nothing has written the
    // GPU's, and only in `opaque` is it known what kernels reach.
    bool asks_what_is_written() const { return retain && safety == Safety::Opaque; }
    bool check = false;                                  // guards while running: executor/guards.h
    std::vector<std::string> exempt = default_exempt();  // beginnings of file names of libraries
    MemInfo meminfo = MemInfo::Physical;
    std::string frameworks = "auto";  // see util::frameworks_of()
    Safety safety = Safety::Opaque;
    std::string policy = "next-use";  // the name of a built-in policy or the path of a plugin
    log::Level log_level = log::Level::Warn;
    std::string log_path;                           // empty: stderr; "%p" is the process
    std::string stats_path;                         // empty: none; "%p" is the process
    std::string trace_path;                         // empty: none; "%p" is the process
    std::optional<std::uint64_t> trace_file_bytes;  // then another file is begun; empty: never
    std::string driver_path;                        // empty: search as the dynamic loader does
};

// One variable. All strings are static; functions are never null.
struct Setting {
    std::string_view variable;  // "LMS_THRESHOLD"
    std::string_view option;    // of `lms run`, without the dashes: "threshold"
    std::string_view value;     // placeholder for its value: "SIZE"; empty: the option takes none and means 1
    std::string_view fallback;  // its default, in words
    std::string_view meaning;   // one sentence without a full stop
    std::string_view accepted;  // completes "expected ..."
    bool (*parse)(std::string_view text, Settings& settings);  // false, and nothing changed: not accepted
    std::string (*show)(const Settings& settings);  // the value in force; empty: the default of `fallback`
};

std::span<const Setting> settings_table();

// What one line says of a value that is not accepted.
std::string refusal(const Setting& setting, std::string_view name, std::string_view value);

// The value of an environment variable, or null.
using Getter = std::function<const char*(const char* variable)>;

// Unset and empty variables give the default; so do values not accepted, each with a line in `problems`.
Settings parse_settings(const Getter& getter, std::vector<std::string>& problems);

// One line for each LMS_* variable of `environment` (null-terminated "NAME=value" strings) that is not in the
// table, with the nearest name that is.
std::vector<std::string> unknown_variables(const char* const* environment);

// The settings of this process. The first call reads the environment, configures the log and reports what is
// wrong with them at warn; safe from any thread. Never throws; out of memory gives the defaults.
const Settings& settings() noexcept;

}  // namespace lms
