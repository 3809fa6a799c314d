#include "tools/lms/top_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "shim/trace/events.h"
#include "shim/trace/live_folder.h"
#include "shim/util/units.h"

namespace lms::tool {
namespace {

using trace::Counters;
using trace::LiveGpu;
using trace::LivePage;
using util::format_bytes;

constexpr const char* kRow =
    "{:>8} {:<14.14} {:>3} {:>8} {:>9} {:>8} {:>8} {:>9} {:>9} {:>6} {:>9} {:>8}  {}";

// Of a process between two looks.
class Rates {
  public:
    Rates(const LivePage* before, const LivePage& now, std::uint64_t from_ns, std::uint64_t to_ns)
        : before_(before),
          now_(now),
          seconds_(static_cast<double>(to_ns - std::min(to_ns, before == nullptr ? now.began_ns : from_ns)) /
                   1e9) {}

    double a_second(Counters::Counter Counters::*counter) const {
        const std::uint64_t since = before_ == nullptr ? 0 : (before_->counters.*counter).load();
        const std::uint64_t now = now_.counters.*counter;
        return seconds_ <= 0 ? 0 : static_cast<double>(now - std::min(since, now)) / seconds_;
    }
    std::string bytes(Counters::Counter Counters::*counter) const {
        return format_bytes(static_cast<std::uint64_t>(a_second(counter))) + "/s";
    }
    // Of all its threads together: may be above 1.
    std::string waited() const { return fmt::format("{:.0f}%", a_second(&Counters::stall_ns) / 1e9 * 100); }
    std::string launches() const { return fmt::format("{:.0f}/s", a_second(&Counters::launches)); }

  private:
    const LivePage* before_;
    const LivePage& now_;
    double seconds_;
};

const LivePage* same_process(const Look& look, const LivePage& page) {
    const std::string name = trace::name_of(page);
    const auto found =
        std::ranges::find(look.pages, name, [](const auto& each) { return trace::name_of(*each); });
    return found == look.pages.end() ? nullptr : found->get();
}

std::string program_of(const LivePage& page) {
    return std::filesystem::path(page.program).filename();
}

// What `lms set` has asked for; what may be filled is below it where there is no more.
std::string limit_of(const LivePage& page) {
    return page.request.limit_bytes == 0 ? "none" : format_bytes(page.request.limit_bytes);
}

void add_rows(const LivePage& page, const Rates& rates, std::vector<std::string>& rows) {
    bool first = true;
    const auto row = [&](const std::string& gpu, const LiveGpu& levels) {
        const auto once = [&](const std::string& text) { return first ? text : std::string(); };
        rows.push_back(fmt::format(kRow, once(std::to_string(page.process)), once(program_of(page)), gpu,
                                   format_bytes(levels.budget_bytes), format_bytes(levels.allocated_bytes),
                                   format_bytes(levels.resident_bytes), format_bytes(levels.host_bytes),
                                   once(rates.bytes(&Counters::bytes_in)),
                                   once(rates.bytes(&Counters::bytes_out)),
                                   once(page.request.paused == 1 ? "paused" : rates.waited()),
                                   once(rates.launches()), once(limit_of(page)), once(policy_of(page))));
        first = false;
    };
    for (std::size_t device = 0; device < LivePage::kGpus; ++device) {
        if (page.gpus[device].used != 0) row(std::to_string(device), page.gpus[device]);
    }
    if (first) row("-", LiveGpu{});
}

}  // namespace

Look look_at_processes(int process) {
    Look look;
    for (auto& page : trace::LiveFolder().pages()) {
        if (page->ended_ns == 0 && !trace::is_gone(*page) && (process == 0 || page->process == process))
            look.pages.push_back(std::move(page));
    }
    std::ranges::sort(look.pages, {}, [](const auto& page) { return page->began_ns; });
    look.at_ns = trace::now_ns();
    return look;
}

std::vector<std::string> table(const Look& before, const Look& now) {
    std::vector<std::string> rows{fmt::format(kRow, "PID", "PROGRAM", "GPU", "BUDGET", "ALLOCATED",
                                              "RESIDENT", "ON HOST", "IN", "OUT", "WAITS", "LAUNCHES",
                                              "LIMIT", "POLICY")};
    for (const auto& page : now.pages) {
        add_rows(*page, Rates(same_process(before, *page), *page, before.at_ns, now.at_ns), rows);
    }
    return rows;
}

std::string to_json(const Look& look) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const auto& page : look.pages) all.push_back(process_json(*page));
    return text_of(all);
}

}  // namespace lms::tool
