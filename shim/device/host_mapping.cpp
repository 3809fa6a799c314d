#include "shim/device/host_mapping.h"

#include <fmt/format.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "shim/device/driver_table.h"
#include "shim/device/loader.h"
#include "shim/util/answer_cache.h"
#include "shim/util/ask_apart.h"
#include "shim/util/log.h"
#include "shim/util/mutex.h"
#include "shim/util/settings.h"
#include "shim/util/trust.h"

namespace lms::device {
namespace {

namespace fs = std::filesystem;

// Built: beside the shim; installed: ../../bin. Empty where there is none, or where others may have written
// it. The owner of the shim is trusted too: that user's code runs in this process already.
std::string helper() {
    if (getauxval(AT_SECURE) != 0) return {};
    const auto* const own = static_cast<const link_map*>(own_library());
    if (!own) return {};
    struct stat own_file;
    if (stat(own->l_name, &own_file) != 0) return {};
    std::error_code problem;
    const fs::path folder = fs::canonical(own->l_name, problem).parent_path();
    for (const fs::path& place : {folder / "lms", folder / "../../bin/lms"}) {
        const fs::path path = fs::canonical(place, problem);
        if (problem) continue;
        if (util::distrust(path).empty() || util::distrust(path, own_file.st_uid).empty()) return path;
    }
    return {};
}

// The driver by its file, the device by its address on the bus; another shim may ask otherwise.
std::string key_of(const std::string& bus) {
    std::error_code problem;
    const fs::path driver = fs::canonical(driver_path(), problem);
    const auto size = fs::file_size(driver, problem);
    const auto written = fs::last_write_time(driver, problem).time_since_epoch().count();
    return fmt::format("{} {} {} {} {}", driver.string(), size, written, bus, LMS_VERSION);
}

// What it says of host memory.
std::string_view verdict_of(std::string_view answer) {
    return answer.substr(0, answer.find(kRemapsWait));
}

bool is_kept(std::string_view whole) {
    const std::string_view answer = verdict_of(whole);
    return answer == kWorksInPlace || answer == kNotMapped || answer == kDied ||
           answer.starts_with(kNotInPlace);
}

// Nsight Compute loads its libraries into whatever its program starts: what they make of the trial is not
// kept.
bool is_profiled() {
    return std::getenv("NV_TPS_LAUNCH_TOKEN") != nullptr;
}

std::string answer_for(CUdevice device) {
    char bus[32] = {};
    const std::string program = helper();
    if (program.empty() || driver().cuDeviceGetPCIBusId(bus, sizeof bus, device) != CUDA_SUCCESS)
        return std::string(kNotTried);
    const std::string key = key_of(bus);
    std::string answer = util::cached_answer("host-mapping", key);
    if (is_kept(answer)) return answer;
    const auto said = util::ask_apart({program, "self-check", bus}, {{"LMS_DRIVER", driver_path()}});
    if (!said) return std::string(kNotTried);
    // A process that the driver ended says so itself; an empty answer means that something else killed it.
    answer = said->empty() ? kNotTried : *said;
    log::info("a trial of host memory behind GPU addresses, in another process: {}", answer);
    if (is_kept(answer) && !is_profiled()) util::keep_answer("host-mapping", key, answer);
    return answer;
}

ToldApart ask(CUdevice device) {
    static util::Mutex mutex{util::LockOrder::Driver};
    static std::map<CUdevice, ToldApart> known;
    const util::Lock lock(mutex);
    if (const auto it = known.find(device); it != known.end()) return it->second;
    const std::string whole = answer_for(device);
    const std::string_view answer = verdict_of(whole);
    const bool died = answer == kDied;
    const bool may = !died && !answer.starts_with(kNotInPlace);
    if (!may)
        log::warn(
            "evicted memory is unmapped: kernels cannot use host memory here ({}), unless "
            "LMS_HOST_MAPPING=on overrides that",
            died ? "the driver ended the process that tried it" : answer);
    const ToldApart told{may, answer.size() < whole.size()};
    known[device] = told;
    return told;
}

}  // namespace

ToldApart told_apart(CUdevice device) noexcept try {
    // What reaches evicted memory unnamed is to be noticed.
    if (settings().check) return {false};
    const HostMapping wanted = settings().host_mapping;
    return wanted == HostMapping::Auto ? ask(device) : ToldApart{wanted == HostMapping::On};
} catch (...) {
    return {true};  // out of host memory: as without a process apart
}

}  // namespace lms::device
