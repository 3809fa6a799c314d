#include "tools/lms/set.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "policy/host.h"
#include "shim/trace/live_folder.h"
#include "shim/util/log.h"
#include "shim/util/share_terms.h"
#include "shim/util/units.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/tenants.h"
#include "tools/lms/to_stderr.h"

namespace lms::tool {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);

struct Changes {
    std::optional<std::uint64_t> limit_bytes;
    std::optional<std::uint64_t> log_level;
    std::optional<bool> paused;
    std::optional<std::string> policy;
    std::optional<std::string> share;
};

// The program has a folder of its own.
std::string absolute_policy(const std::string& setting) {
    const std::size_t comma = setting.find(',');
    const std::string name = setting.substr(0, comma);
    if (!name.ends_with(".so") && name.find('/') == name.npos) return setting;
    return std::filesystem::absolute(name).string() + (comma == setting.npos ? "" : setting.substr(comma));
}

// Notes one; what is wrong with it, or nothing.
std::string note(const std::string& word, Changes& changes) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == word.npos ? "" : word.substr(equals + 1);
    if (word == "pause" || word == "resume") {
        changes.paused = word == "pause";
    } else if (name == "limit" && equals != word.npos) {
        changes.limit_bytes = value == "none" ? std::optional<std::uint64_t>(0) : util::parse_bytes(value, 1);
        if (!changes.limit_bytes || (*changes.limit_bytes == 0 && value != "none"))
            return fmt::format("{}: expected a size in bytes above 0, or with suffix K, M, G or T, or none",
                               word);
    } else if (name == "log" && equals != word.npos) {
        const auto level = log::parse_level(value);
        if (!level) return fmt::format("{}: expected off, error, warn, info or debug", word);
        changes.log_level = static_cast<std::uint64_t>(*level) + 1;
    } else if (name == "policy" && equals != word.npos) {
        changes.policy = absolute_policy(value);
        std::string problem;
        if (!policy::find(*changes.policy, problem)) return fmt::format("{}: {}", word, problem);
        if (changes.policy->size() >= sizeof trace::LiveRequest::policy) return word + ": too long";
    } else if (name == "share" && equals != word.npos) {
        const auto terms = util::parse_share_terms(value);
        if (!terms || !terms->shares)
            return fmt::format("{}: expected {}", word, util::ShareTerms::kAccepted);
        changes.share = value;
        if (value.size() >= sizeof trace::LiveRequest::share) return word + ": too long";
    } else {
        return fmt::format(
            "no change {}; expected limit=SIZE, share=TERMS, policy=NAME, log=LEVEL, pause or resume", word);
    }
    return {};
}

template <std::size_t size>
void put(const std::string& text, char (&target)[size]) {
    std::memset(target, 0, size);
    text.copy(target, size - 1);
}

void write(const Changes& changes, trace::LiveRequest& request) {
    if (changes.limit_bytes) request.limit_bytes = *changes.limit_bytes;
    if (changes.log_level) request.log_level = *changes.log_level;
    if (changes.paused) request.paused = *changes.paused ? 1 : 0;
    if (changes.policy) put(*changes.policy, request.policy);
    if (changes.share) put(*changes.share, request.share);
}

bool await(const trace::LiveRequest& request) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (request.taken < request.number) {
        if (std::chrono::steady_clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

}  // namespace

int set(int process, const std::vector<std::string>& words) {
    Changes changes;
    for (const std::string& word : words) {
        if (const std::string problem = note(word, changes); !problem.empty()) {
            to_stderr("lms set: {}\n", problem);
            return kUsage;
        }
    }
    if (changes.share && look_at_shared_gpus(process).empty()) {
        to_stderr(
            "lms set: process {} shares no GPU: LMS_SHARE was off at its start, or LMS_LOG=info says why\n",
            process);
        return kNotWell;
    }
    const Told told =
        tell_process(process, "set", [&](trace::LiveRequest& request) { write(changes, request); });
    return told == Told::Never ? kNotWell : 0;
}

Told tell_process(int process, const char* command, const std::function<void(trace::LiveRequest&)>& write,
                  const std::function<void(const trace::LiveRequest&)>& read) {
    std::string problem;
    const trace::LiveFolder folder;
    const auto page = folder.share_with(process, problem);
    if (!page) {
        to_stderr("lms {}: {}\n", command, problem);
        return Told::Never;
    }
    write(page->request);
    ++page->request.number;
    if (!await(page->request)) {
        if (folder.is_gone(*page)) {
            to_stderr("lms {}: process {} has ended\n", command, process);
            return Told::Never;
        }
        fmt::print(
            "process {} has the request, and obeys when it next allocates GPU memory, waits for the GPU, or "
            "launches work during moves\n",
            process);
        return Told::Later;
    }
    if (read) read(page->request);
    return Told::Done;
}

}  // namespace lms::tool
