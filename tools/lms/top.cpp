#include "tools/lms/top.h"

#include <curses.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tools/lms/exit_codes.h"
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

    void show(const std::vector<std::string>& rows, std::size_t processes) {
        erase();
        mvaddnstr(0, 0, fmt::format("lms top: {} under the shim; q ends", processes).c_str(), COLS);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (i == 0) attron(A_REVERSE);
            mvaddnstr(static_cast<int>(i) + 2, 0, rows[i].c_str(), COLS);
            if (i == 0) attroff(A_REVERSE);
        }
        refresh();
    }
    // After a second, or as soon as a key is pressed.
    bool is_over() { return getch() == 'q'; }
};

void watch(int process) {
    Screen screen;
    Look before = look_at_processes(process);
    screen.show(table({}, before), before.pages.size());
    while (!screen.is_over()) {
        Look now = look_at_processes(process);
        screen.show(table(before, now), now.pages.size());
        before = std::move(now);
    }
}

}  // namespace

int top(int process, bool as_json) {
    const Look look = look_at_processes(process);
    if (process != 0 && look.pages.empty()) {
        fmt::print(stderr, "lms top: no process {} of yours runs under the shim\n", process);
        return kNotWell;
    }
    if (as_json) {
        fmt::print("{}", to_json(look));
    } else if (isatty(STDOUT_FILENO) && isatty(STDIN_FILENO)) {
        watch(process);
    } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(kSecondMs));
        for (const std::string& row : table(look, look_at_processes(process))) fmt::print("{}\n", row);
    }
    return 0;
}

}  // namespace lms::tool
