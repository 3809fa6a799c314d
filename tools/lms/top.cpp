#include "tools/lms/top.h"

#include <curses.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "shim/trace/live_folder.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/to_stderr.h"
#include "tools/lms/top_table.h"

namespace lms::tool {
namespace {

constexpr int kSecondMs = 1000;

// The terminal is as it was when this goes.
class Screen {
  public:
    Screen() {
        initscr();
        cbreak();
        noecho();
        curs_set(0);
        timeout(kSecondMs);
    }
    ~Screen() { endwin(); }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    void show(const Look& before, const Look& now) {
        erase();
        mvaddnstr(0, 0, fmt::format("lms top: {} under the shim; q ends", now.pages.size()).c_str(), COLS);
        int line = 2;
        for (const auto& table : tables(before, now, static_cast<std::size_t>(COLS)))
            line = put(table, line) + 1;
        for (const auto& rows : {tenants(now), hottest(before, now)})
            line = put(rows, line) + (rows.empty() ? 0 : 1);
        refresh();
    }
    // After a second, or as soon as a key is pressed.
    bool is_over() { return getch() == 'q'; }

  private:
    // A table, the first row of which has its headings: the line behind it.
    static int put(const std::vector<std::string>& rows, int line) {
        for (std::size_t i = 0; i < rows.size(); ++i, ++line) {
            if (i == 0) attron(A_REVERSE);
            mvaddnstr(line, 0, rows[i].c_str(), COLS);
            if (i == 0) attroff(A_REVERSE);
        }
        return line;
    }
};

void watch(int process) {
    Screen screen;
    Look before = look_at_processes(process);
    screen.show({}, before);
    while (!screen.is_over()) {
        Look now = look_at_processes(process);
        screen.show(before, now);
        before = std::move(now);
    }
}

}  // namespace

int top(int process, bool as_json) {
    // Of processes that were killed and that nobody waits for.
    trace::LiveFolder().clean();
    const Look look = look_at_processes(process);
    if (process != 0 && look.pages.empty() && look.shared.empty()) {
        to_stderr("lms top: no process {} of yours runs under the shim\n", process);
        return kNotWell;
    }
    if (as_json) {
        fmt::print("{}", to_json(look));
    } else if (isatty(STDOUT_FILENO) && isatty(STDIN_FILENO)) {
        watch(process);
    } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(kSecondMs));
        const Look now = look_at_processes(process);
        for (const std::string& row : table(look, now)) fmt::print("{}\n", row);
        for (const auto& rows : {tenants(now), hottest(look, now)}) {
            if (!rows.empty()) fmt::print("\n");
            for (const std::string& row : rows) fmt::print("{}\n", row);
        }
    }
    return 0;
}

}  // namespace lms::tool
