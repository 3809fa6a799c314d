#include "tools/lms/top_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "shim/trace/events.h"
#include "shim/trace/live_folder.h"
#include "shim/util/units.h"
#include "tools/lms/printable.h"

namespace lms::tool {
namespace {

using trace::Counters;
using trace::LiveGpu;
using trace::LivePage;
using util::format_bytes;

// The last takes what is left of a line.
struct Column {
    const char* name;
    std::size_t width;
};
constexpr std::array kTableColumns = {Column{"PID", 8},     Column{"PROGRAM", 14},  Column{"GPU", 3},
                                      Column{"BUDGET", 8},  Column{"ALLOCATED", 9}, Column{"RESIDENT", 8},
                                      Column{"ON HOST", 8}, Column{"IN", 9},        Column{"OUT", 9},
                                      Column{"WAITS", 6},   Column{"LAUNCHES", 9},  Column{"LIMIT", 8},
                                      Column{"POLICY", 0}};
using Cells = std::array<std::string, kTableColumns.size()>;
// All in one line, or what is of a GPU and what is of a process.
constexpr std::array<std::size_t, 13> kAll = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
constexpr std::array<std::size_t, 7> kOfGpu = {0, 1, 2, 3, 4, 5, 6};
constexpr std::array<std::size_t, 8> kOfProcess = {0, 1, 7, 8, 9, 10, 11, 12};
constexpr std::size_t kProgram = 1;

std::string line_of(const Cells& row, std::span<const std::size_t> columns) {
    std::string line;
    for (const std::size_t at : columns) {
        if (!line.empty()) line += kTableColumns[at].width == 0 ? "  " : " ";
        line += at == kProgram ? fmt::format("{0:<{1}.{1}}", row[at], kTableColumns[at].width)
                               : fmt::format("{:>{}}", row[at], kTableColumns[at].width);
    }
    return line;
}

constexpr const char* kBufferRow = "{:>8} {:>3} {:>8} {:>9} {:>9} {:>9} {:>9}  {}";
constexpr std::size_t kMostBuffers = 16;  // lines

std::string per_second(double bytes) {
    return format_bytes(util::whole_bytes(bytes)) + "/s";
}

// Of a process between two looks.
class Rates {
  public:
    Rates(const LivePage* before, const LivePage& now, std::uint64_t from_ns, std::uint64_t to_ns)
        : before_(before),
          now_(now),
          seconds_(static_cast<double>(to_ns - std::min(to_ns, before == nullptr ? now.began_ns : from_ns)) /
                   1e9) {}

    double a_second(std::uint64_t since, std::uint64_t now) const {
        return seconds_ <= 0 ? 0 : static_cast<double>(now - std::min(since, now)) / seconds_;
    }
    double a_second(Counters::Counter Counters::*counter) const {
        return a_second(before_ == nullptr ? 0 : (before_->counters.*counter).load(), now_.counters.*counter);
    }
    std::string bytes(Counters::Counter Counters::*counter) const { return per_second(a_second(counter)); }
    // Of all its threads together: may be above 1.
    std::string waited() const { return fmt::format("{:.0f}%", a_second(&Counters::stall_ns) / 1e9 * 100); }
    std::string launches() const { return fmt::format("{:.0f}/s", a_second(&Counters::launches)); }

  private:
    const LivePage* before_;
    const LivePage& now_;
    double seconds_;
};

const LivePage* same_process(const Look& look, const LivePage& page) {
    const auto found =
        std::ranges::find(look.pages, page.process, [](const auto& each) { return each->process; });
    return found == look.pages.end() ? nullptr : found->get();
}

std::string program_of(const LivePage& page) {
    return printable(std::filesystem::path(page.program).filename().native());
}

// What `lms set` has asked for; what may be filled is below it where there is no more.
std::string limit_of(const LivePage& page) {
    return page.request.limit_bytes == 0 ? "none" : format_bytes(page.request.limit_bytes);
}

void add_rows(const LivePage& page, const Rates& rates, std::vector<Cells>& rows) {
    bool first = true;
    const auto row = [&](const std::string& gpu, const LiveGpu& levels) {
        const auto once = [&](const std::string& text) { return first ? text : std::string(); };
        rows.push_back({once(std::to_string(page.process.number)), once(program_of(page)), gpu,
                        format_bytes(levels.budget_bytes), format_bytes(levels.allocated_bytes),
                        format_bytes(levels.resident_bytes), format_bytes(levels.host_bytes),
                        once(rates.bytes(&Counters::bytes_in)), once(rates.bytes(&Counters::bytes_out)),
                        once(page.request.paused == 1 ? "paused" : rates.waited()), once(rates.launches()),
                        once(limit_of(page)), once(policy_of(page))});
        first = false;
    };
    for (std::size_t device = 0; device < LivePage::kGpus; ++device) {
        if (page.gpus[device].used != 0) row(std::to_string(device), page.gpus[device]);
    }
    if (first) row("-", LiveGpu{});
}

struct BufferRow {
    std::int64_t process;
    MovingBuffer buffer;
    double in;  // bytes a second, as the next
    double out;
    std::string site;
};

void add_rows(const LivePage* before, const LivePage& now, const Rates& rates, std::vector<BufferRow>& rows) {
    std::vector<MovingBuffer> seen;
    if (before != nullptr) seen = moving_buffers(*before);
    std::vector<MovingBuffer> buffers = moving_buffers(now);
    std::erase_if(buffers, [](const MovingBuffer& each) { return each.freed; });
    std::vector<std::string> places = places_of(buffers);
    for (std::size_t i = 0; i < buffers.size(); ++i) {
        MovingBuffer& each = buffers[i];
        const auto known = std::ranges::find(seen, each.number, &MovingBuffer::number);
        const MovingBuffer then = known == seen.end() ? MovingBuffer{} : *known;
        const double in = rates.a_second(then.bytes_in, each.bytes_in);
        const double out = rates.a_second(then.bytes_out, each.bytes_out);
        rows.push_back({now.process.number, std::move(each), in, out, std::move(places[i])});
    }
}

}  // namespace

Look look_at_processes(int process) {
    Look look{.process = process};
    const trace::LiveFolder folder;
    for (auto& page : folder.pages()) {
        if (page->ended_ns == 0 && !folder.is_gone(*page)) look.pages.push_back(std::move(page));
    }
    look.shared = look_at_shared_gpus(process, look.pages);
    if (process != 0)
        std::erase_if(look.pages, [&](const auto& page) { return page->process.number != process; });
    std::ranges::sort(look.pages, {}, [](const auto& page) { return page->began_ns; });
    look.at_ns = trace::now_ns();
    return look;
}

std::vector<std::vector<std::string>> tables(const Look& before, const Look& now, std::size_t width) {
    Cells heads;
    std::ranges::transform(kTableColumns, heads.begin(), &Column::name);
    std::vector<Cells> rows{heads};
    for (const auto& page : now.pages) {
        add_rows(*page, Rates(same_process(before, *page), *page, before.at_ns, now.at_ns), rows);
    }
    std::vector<std::string> whole, of_gpus, of_processes;
    for (const Cells& row : rows) {
        whole.push_back(line_of(row, kAll));
        of_gpus.push_back(line_of(row, kOfGpu));
        // Else it is of another GPU of the same process.
        if (!row.front().empty()) of_processes.push_back(line_of(row, kOfProcess));
    }
    const bool fits =
        std::ranges::all_of(whole, [&](const std::string& line) { return line.size() <= width; });
    if (fits) return {whole};
    return {of_gpus, of_processes};
}

std::vector<std::string> table(const Look& before, const Look& now) {
    return tables(before, now, ~std::size_t{0}).front();
}

std::vector<std::string> hottest(const Look& before, const Look& now) {
    std::vector<BufferRow> hot;
    for (const auto& page : now.pages) {
        const LivePage* const then = same_process(before, *page);
        add_rows(then, *page, Rates(then, *page, before.at_ns, now.at_ns), hot);
    }
    if (hot.empty()) return {};
    // One that has moved most by now is not one that moves.
    std::ranges::stable_sort(hot, std::ranges::greater{}, [](const BufferRow& row) {
        return std::pair(row.in + row.out, row.buffer.moved());
    });
    hot.resize(std::min(hot.size(), kMostBuffers));
    std::vector<std::string> rows{
        fmt::format(kBufferRow, "PID", "GPU", "BUFFER", "SIZE", "IN", "OUT", "MOVED", "ALLOCATED AT")};
    for (const BufferRow& row : hot) {
        rows.push_back(fmt::format(kBufferRow, row.process, row.buffer.device, row.buffer.number,
                                   format_bytes(row.buffer.bytes), per_second(row.in), per_second(row.out),
                                   format_bytes(row.buffer.moved()), row.site.empty() ? "-" : row.site));
    }
    return rows;
}

std::vector<std::string> tenants(const Look& now) {
    return tenants_table(now.shared, now.at_ns);
}

std::string to_json(const Look& look) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    std::vector<trace::ProcessName> known;
    for (const auto& page : look.pages) {
        known.push_back(page->process);
        all.push_back(process_json(*page));
        all.back()["shares"] = shares_json(look.shared, page->process, look.at_ns);
    }
    for (const SharedGpu& gpu : look.shared) {
        for (const SharedGpu::One& each : gpu.tenants) {
            const trace::ProcessName& process = each.seen.process;
            if (look.process != 0 && process.number != look.process) continue;
            if (std::ranges::find(known, process) != known.end()) continue;
            known.push_back(process);
            all.push_back({{"process", process.number},
                           {"program", nullptr},
                           {"shares", shares_json(look.shared, process, look.at_ns)}});
        }
    }
    return text_of(all);
}

}  // namespace lms::tool
