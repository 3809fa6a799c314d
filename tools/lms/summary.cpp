#include "tools/lms/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>

#include "shim/trace/live_folder.h"
#include "shim/util/units.h"
#include "tools/lms/printable.h"
#include "tools/lms/program_kind.h"

namespace lms::tool {
namespace {

using trace::Counters;
using trace::LiveGpu;
using trace::LivePage;
using util::format_bytes;

double seconds_of(const LivePage& page, std::uint64_t now_ns) {
    const std::uint64_t end = page.ended_ns == 0 ? now_ns : page.ended_ns.load();
    return static_cast<double>(end - std::min(end, page.began_ns)) / 1e9;
}

// Of what is copied in so many seconds, or in one.
std::string rate(std::uint64_t bytes, double seconds = 1) {
    return fmt::format("{:.2f} GB/s", static_cast<double>(bytes) / 1e9 / std::max(seconds, 1e-9));
}

std::string moved(const Counters& counters, double seconds) {
    const double waited = static_cast<double>(counters.stall_ns) / 1e9;
    return fmt::format(
        "moved {} to the GPU in {} copies ({}) and {} to the host in {} evictions ({}); threads waited "
        "{:.1f} of {:.1f} s\n",
        format_bytes(counters.bytes_in), counters.fills.load(), rate(counters.bytes_in, seconds),
        format_bytes(counters.bytes_out), counters.evictions.load(), rate(counters.bytes_out, seconds),
        waited, seconds);
}

// What the link can; empty where no copy was timed.
std::string link(std::size_t device, const LiveGpu& gpu) {
    std::string text;
    for (const auto& [speed, where] : {std::pair(gpu.in_bytes_per_s.load(), "to the GPU"),
                                       std::pair(gpu.out_bytes_per_s.load(), "to the host")}) {
        if (speed > 0) text += fmt::format("{}{} {}", text.empty() ? "" : " and ", rate(speed), where);
    }
    return text.empty() ? text : fmt::format("GPU {}: while it copied, {}\n", device, text);
}

// Those of one size and place together, by number; the few such groups that moved most.
std::string most_moved(const LivePage& page) {
    constexpr std::size_t kFew = 3;
    struct Group {
        std::uint64_t bytes;
        std::string site;
        std::vector<std::uint64_t> numbers = {};
        std::uint64_t bytes_in = 0;
        std::uint64_t bytes_out = 0;
        std::uint64_t moved() const { return bytes_in + bytes_out; }
    };
    std::vector<Group> groups;
    const std::vector<MovingBuffer> buffers = moving_buffers(page);
    const std::vector<std::string> sites = places_of(buffers);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        const MovingBuffer& each = buffers[i];
        auto group = std::ranges::find_if(
            groups, [&](const Group& one) { return one.bytes == each.bytes && one.site == sites[i]; });
        if (group == groups.end()) group = groups.insert(groups.end(), {each.bytes, sites[i]});
        group->numbers.push_back(each.number);
        group->bytes_in += each.bytes_in;
        group->bytes_out += each.bytes_out;
    }
    if (groups.empty()) return {};
    std::ranges::stable_sort(groups, std::ranges::greater{}, &Group::moved);
    std::string text;
    groups.resize(std::min(groups.size(), kFew));
    for (const Group& group : groups) {
        const std::size_t count = group.numbers.size();
        const std::span named(group.numbers.begin(), std::min(count, kFew));
        text += fmt::format(
            "{}{}{} ({}{}{}; {} in, {} out)", text.empty() ? "" : ", ", fmt::join(named, ", "),
            count > kFew ? fmt::format(" and {} more", count - kFew) : "", format_bytes(group.bytes),
            count > 1 ? " each" : "", group.site.empty() ? "" : ", " + group.site,
            format_bytes(group.bytes_in), format_bytes(group.bytes_out));
    }
    return fmt::format("buffers that moved most, numbered by allocation: {}\n", text);
}

std::string lacking(std::size_t device, const LiveGpu& gpu) {
    return fmt::format(
        "GPU {}: up to {} allocated at once, and {} may be filled; with {} more nothing would have moved\n",
        device, format_bytes(gpu.peak_allocated_bytes),
        filled(gpu.budget_bytes, gpu.peak_allocated_bytes, gpu.most_beyond_bytes),
        format_bytes(gpu.most_beyond_bytes));
}

std::string fitted(std::size_t device, const LiveGpu& gpu) {
    return fmt::format(
        "GPU {}: all fitted: up to {} allocated at once, and {} may be filled; nothing moved\n", device,
        format_bytes(gpu.peak_allocated_bytes), format_bytes(gpu.budget_bytes));
}

std::string shared(std::size_t device, const LiveGpu& gpu) {
    const std::string waits =
        gpu.turn_wait_ns == 0
            ? ""
            : fmt::format("; threads waited {:.1f} s for turns", static_cast<double>(gpu.turn_wait_ns) / 1e9);
    return fmt::format("GPU {}: shared with other processes, which left {} for up to {} allocated{}\n",
                       device, format_bytes(gpu.least_granted_bytes), format_bytes(gpu.peak_allocated_bytes),
                       waits);
}

bool has_moved(const LivePage& page) {
    return page.counters.fills != 0 || page.counters.evictions != 0;
}

// What there is to say of one process, a line each.
std::vector<std::string> lines_of(const LivePage& page, std::uint64_t now_ns) {
    std::vector<std::string> lines;
    if (has_moved(page)) lines.push_back(moved(page.counters, seconds_of(page, now_ns)));
    if (std::string buffers = most_moved(page); !buffers.empty()) lines.push_back(std::move(buffers));
    for (std::size_t device = 0; device < LivePage::kGpus; ++device) {
        const LiveGpu& gpu = page.gpus[device];
        if (gpu.used == 0 || gpu.budget_bytes == 0) continue;
        if (std::string speeds = link(device, gpu); !speeds.empty()) lines.push_back(std::move(speeds));
        if (gpu.least_granted_bytes != 0) lines.push_back(shared(device, gpu));
        if (gpu.most_beyond_bytes != 0)
            lines.push_back(lacking(device, gpu));
        else if (!has_moved(page))
            lines.push_back(fitted(device, gpu));
    }
    if (lines.empty()) {
        lines.push_back(page.counters.allocations == 0
                            ? "no allocation reached LMS_THRESHOLD, so none was managed; nothing moved\n"
                            : "nothing moved\n");
    }
    return lines;
}

// What was killed together with the program may take a moment to die; what goes on beside it is not waited
// for.
void await_dying(const trace::LiveFolder& folder, const trace::ProcessName& run) {
    for (int look = 0; look < 10; ++look) {
        const Pages pages = folder.pages();
        if (std::ranges::all_of(
                pages, [&](const auto& page) { return page->run != run || folder.is_gone(*page); })) {
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

}  // namespace

Pages take_pages(const trace::ProcessName& run) {
    const trace::LiveFolder folder;
    await_dying(folder, run);
    Pages taken;
    for (auto& page : folder.pages()) {
        if (page->run != run) continue;
        // One that goes on in the background keeps its page.
        if (folder.is_gone(*page)) {
            if (auto left = folder.take_away(*page)) page = std::move(left);
        }
        taken.push_back(std::move(page));
    }
    std::ranges::sort(taken, {}, [](const auto& page) { return page->began_ns; });
    return taken;
}

std::string summary(const Pages& pages, const std::string& command, std::uint64_t now_ns) {
    if (pages.empty()) return fmt::format("lms: {}\n", why_untouched(command));
    std::string text;
    for (const auto& page : pages) {
        const std::string process =
            pages.size() == 1 ? "" : fmt::format("{} ({}): ", printable(page->program), page->process.number);
        for (const std::string& line : lines_of(*page, now_ns))
            text += fmt::format("lms: {}{}", process, line);
    }
    return text;
}

std::string summary_json(const Pages& pages, std::uint64_t now_ns) {
    nlohmann::ordered_json all{{"processes", nlohmann::ordered_json::array()}};
    Counters sum;
    for (const auto& page : pages) {
        nlohmann::ordered_json process = process_json(*page);
        process["seconds"] = seconds_of(*page, now_ns);
        all["processes"].push_back(process);
        for (const trace::CounterField& field : trace::counter_fields())
            sum.*field.member += page->counters.*field.member;
    }
    all["sum"] = trace::to_json(sum);
    return text_of(all);
}

}  // namespace lms::tool
