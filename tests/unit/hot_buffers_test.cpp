// The buffers that move most, as the live page has them and `lms top` shows them.
#include "shim/trace/hot_buffers.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <thread>

#include "shim/trace/live_folder.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tools/lms/summary.h"
#include "tools/lms/top_table.h"

using namespace lms::trace;
using lms::tool::MovingBuffer;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// A page, and what there is of buffers.
struct Table {
    std::unique_ptr<LivePage> page = std::make_unique<LivePage>();
    HotBuffers buffers{page->moving};

    std::vector<MovingBuffer> seen() const { return lms::tool::moving_buffers(*page); }
    std::vector<std::uint64_t> numbers() const {
        std::vector<std::uint64_t> all;
        for (const MovingBuffer& each : seen()) all.push_back(each.number);
        return all;
    }
    void in(std::uint32_t allocation, std::uint64_t bytes) {
        buffers.moved(0, allocation, Direction::In, bytes);
    }
    void out(std::uint32_t allocation, std::uint64_t bytes) {
        buffers.moved(0, allocation, Direction::Out, bytes);
    }
};

using Numbers = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("hot buffers: what has moved is there with its size, bytes each way and who allocated it") {
    Table table;
    const std::vector<std::string> site = {"inner (a.cu:3)", "main (a.cu:9)"};
    table.buffers.allocated(1, 7, 5 * kMiB, site);
    table.buffers.allocated(0, 7, 3 * kMiB, {});
    CHECK(table.seen().empty());
    table.buffers.moved(1, 7, Direction::In, 5 * kMiB);
    table.buffers.moved(1, 7, Direction::Out, 2 * kMiB);
    table.buffers.moved(0, 7, Direction::Out, kMiB);
    table.buffers.moved(0, 8, Direction::Out, kMiB);  // nobody has allocated it
    const auto seen = table.seen();
    REQUIRE(seen.size() == 2);
    CHECK(seen[0].number == 1);
    CHECK(seen[0].device == 1);
    CHECK(seen[0].bytes == 5 * kMiB);
    CHECK(seen[0].bytes_in == 5 * kMiB);
    CHECK(seen[0].bytes_out == 2 * kMiB);
    CHECK(seen[0].frames == site);
    CHECK(seen[1].number == 2);
    CHECK(seen[1].device == 0);
    CHECK(seen[1].frames.empty());
}

TEST_CASE("hot buffers: of many those that moved most have the places, whenever they did") {
    Table table;
    constexpr std::uint32_t kMany = 200;
    for (std::uint32_t id = 0; id < kMany; ++id) table.buffers.allocated(0, id, kMiB, {});
    std::vector<std::uint64_t> moved(kMany);
    std::mt19937 random(1);
    for (int i = 0; i < 20000; ++i) {
        // Some more often than others.
        const auto id = static_cast<std::uint32_t>(std::min(random() % kMany, random() % kMany));
        const std::uint64_t bytes = random() % kMiB + 1;
        moved[id] += bytes;
        random() % 2 ? table.in(id, bytes) : table.out(id, bytes);
    }
    std::vector<std::uint64_t> most = moved;
    std::ranges::sort(most, std::ranges::greater{});
    std::vector<std::uint64_t> seen;
    for (const MovingBuffer& each : table.seen()) {
        CHECK(each.moved() == moved[each.number - 1]);
        seen.push_back(each.moved());
    }
    REQUIRE(seen.size() == LiveBuffers::kCount);
    // One that has moved comes in when it moves next; who moves all the time is there.
    CHECK(std::ranges::equal(std::span(seen).first(8), std::span(most).first(8)));
}

TEST_CASE("hot buffers: one that is freed stays until another moves, and its number is nobody else's") {
    Table table;
    for (std::uint32_t id = 0; id < LiveBuffers::kCount; ++id) {
        table.buffers.allocated(0, id, kMiB, {});
        table.in(id, (id + 2) * kMiB);
    }
    table.buffers.freed(0, 15);
    CHECK(table.seen()[0].freed);
    table.buffers.allocated(0, 15, kMiB, {});
    table.in(15, 1);
    CHECK(table.numbers().back() == LiveBuffers::kCount + 1);
    CHECK(std::ranges::none_of(table.seen(), &MovingBuffer::freed));
    // All live: what has moved less than each has no place.
    table.buffers.allocated(0, 99, kMiB, {});
    table.in(99, 1);
    CHECK(std::ranges::count(table.numbers(), LiveBuffers::kCount + 2) == 0);
    table.in(99, 1);
    CHECK(table.numbers().back() == LiveBuffers::kCount + 2);
}

TEST_CASE(
    "hot buffers: of a long call stack there are whole frames, innermost first, and if Python called, its "
    "own") {
    Table table;
    const std::vector<std::string> deep(16, std::string(60, 'f'));
    table.buffers.allocated(0, 0, kMiB, deep);
    table.buffers.allocated(0, 1, kMiB, std::vector<std::string>(2, std::string(4000, 'g')));
    std::vector<std::string> called_by_python = deep;
    called_by_python.emplace_back("File \"train.py\", line 3, in step");
    table.buffers.allocated(0, 2, kMiB, called_by_python);
    for (std::uint32_t id = 0; id < 3; ++id) table.in(id, 3 - id);
    const auto seen = table.seen();
    REQUIRE(seen.size() == 3);
    CHECK(seen[0].frames == std::vector<std::string>(7, deep[0]));
    CHECK(seen[1].frames.empty());
    CHECK(seen[2].frames == std::vector<std::string>{called_by_python.back()});
}

TEST_CASE("hot buffers: seen from another process never half of one and half of another") {
    const Scratch scratch;
    setenv("XDG_RUNTIME_DIR", scratch.path().c_str(), 1);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = support::start_child([&] {
        publish("");
        // Each pushes out the one before, and is told by every number of its own.
        for (std::uint32_t id = 1;; ++id) {
            const std::uint64_t number = id;
            hot_buffers().allocated(0, id, number,
                                    std::vector<std::string>(7, std::to_string(1'000'000'000 + number)));
            hot_buffers().moved(0, id, Direction::Out, number);
            hot_buffers().freed(0, id);
            if (id == LiveBuffers::kCount) support::write_report(ends[1], "x");
        }
    });
    char ready;
    REQUIRE(read(ends[0], &ready, 1) == 1);
    std::uint64_t seen = 0;
    for (int look = 0; look < 8000; ++look) {
        const auto pages = LiveFolder().pages();
        REQUIRE(pages.size() == 1);
        for (const MovingBuffer& each : lms::tool::moving_buffers(*pages[0])) {
            ++seen;
            REQUIRE(each.bytes == each.number);
            REQUIRE(each.bytes_out == each.number);
            REQUIRE(each.frames == std::vector<std::string>(7, std::to_string(1'000'000'000 + each.number)));
        }
    }
    CHECK(seen > 0);
    kill(child, SIGKILL);
    support::end_of_child(child);
    unsetenv("XDG_RUNTIME_DIR");
    for (const int end : ends) close(end);
}

TEST_CASE("hot buffers: a page that ends in the middle of a change, or with anything in it, is read") {
    const Scratch scratch;
    setenv("XDG_RUNTIME_DIR", scratch.path().c_str(), 1);
    const auto publish_and_hold = [&] {
        int ends[2];
        REQUIRE(pipe(ends) == 0);
        const pid_t child = support::start_child([&] {
            publish("");
            hot_buffers().allocated(0, 1, kMiB, {});
            hot_buffers().moved(0, 1, Direction::In, kMiB);
            support::write_report(ends[1], "x");
            pause();
        });
        char ready;
        REQUIRE(read(ends[0], &ready, 1) == 1);
        for (const int end : ends) close(end);
        return child;
    };
    const pid_t child = publish_and_hold();
    auto pages = LiveFolder().pages();
    REQUIRE(pages.size() == 1);
    REQUIRE(lms::tool::moving_buffers(*pages[0]).size() == 1);
    const std::string name = name_of(*pages[0]);
    const auto put = [&](const LivePage& page) {
        std::string bytes(sizeof(OwnPage), '\0');
        std::memcpy(bytes.data(), static_cast<const void*>(&page), sizeof page);
        scratch.put("lmsshim-" + std::to_string(geteuid()) + "/" + name, bytes);
    };
    pages[0]->moving.changes = 7;
    put(*pages[0]);
    pages = LiveFolder().pages();
    REQUIRE(pages.size() == 1);
    CHECK(lms::tool::moving_buffers(*pages[0]).empty());

    std::mt19937_64 random(2);
    for (int round = 0; round < 300; ++round) {
        // All but what makes it this process's page.
        auto* const begin = reinterpret_cast<char*>(&pages[0]->began_ns);
        char* const end = reinterpret_cast<char*>(pages[0].get()) + sizeof(LivePage);
        for (char* at = begin; at != end; ++at) {
            if (round % 3 != 2 || random() % 50 == 0)
                *at = static_cast<char>(round % 3 == 0 ? 0xff : random());
        }
        pages[0]->moving.changes = 2 * static_cast<std::uint64_t>(round);
        pages[0]->ended_ns = 0;
        put(*pages[0]);
        lms::tool::Look before = lms::tool::look_at_processes(child);
        const lms::tool::Look now = lms::tool::look_at_processes(child);
        REQUIRE(now.pages.size() == 1);
        for (const auto& rows : {table(before, now), hottest({}, now), hottest(before, now)}) {
            CHECK(rows.size() <= 1 + LivePage::kGpus);
            for (const std::string& row : rows) CHECK(std::ranges::find(row, '\n') == row.end());
        }
        CHECK(to_json(now).starts_with("["));
        CHECK_FALSE(lms::tool::summary(now.pages, "true", now.at_ns).empty());
        pages = LiveFolder().pages();
        REQUIRE(pages.size() == 1);
    }
    kill(child, SIGKILL);
    support::end_of_child(child);
    unsetenv("XDG_RUNTIME_DIR");
}

TEST_CASE("lms top: buffers by how fast they move now, by the frame that they do not share") {
    lms::tool::Look before, now;
    for (lms::tool::Look* look : {&before, &now}) look->pages.push_back(std::make_unique<LivePage>());
    before.at_ns = 1'000'000'000;
    now.at_ns = 3'000'000'000;
    HotBuffers then(before.pages[0]->moving), later(now.pages[0]->moving);
    for (HotBuffers* all : {&then, &later}) {
        all->allocated(0, 1, 4 * kMiB, std::vector<std::string>{"allocate (a.cu:1)", "weights (a.cu:8)"});
        all->allocated(1, 2, 2 * kMiB, std::vector<std::string>{"allocate (a.cu:1)", "inputs (a.cu:9)"});
        all->allocated(0, 3, kMiB, {});
        all->moved(0, 1, Direction::In, 100 * kMiB);
        all->moved(0, 3, Direction::In, 200 * kMiB);
    }
    later.moved(1, 2, Direction::In, 4 * kMiB);
    later.moved(1, 2, Direction::Out, 2 * kMiB);
    later.freed(0, 3);
    const std::vector<std::string> rows = hottest(before, now);
    REQUIRE(rows.size() == 3);
    CHECK(rows[0] == "     PID GPU   BUFFER      SIZE        IN       OUT     MOVED  ALLOCATED AT");
    CHECK(rows[1] == "       0   1        2        2M      2M/s      1M/s        6M  inputs (a.cu:9)");
    CHECK(rows[2] == "       0   0        1        4M      0B/s      0B/s      100M  weights (a.cu:8)");
    CHECK(lms::tool::hottest({}, {}).empty());
}

TEST_CASE("lms: a buffer is told by the user's line of Python, not by that of a package which it called") {
    const std::string convert =
        "File \"/venv/lib/python3.11/site-packages/torch/nn/modules/module.py\", line 1374, in convert";
    const std::string zeros = "File \"/usr/lib/python3/dist-packages/torch/zeros.py\", line 3, in zeros";
    const auto line = [](int number) { return fmt::format("File \"train.py\", line {}, in step", number); };
    const auto buffer = [](std::vector<std::string> frames) {
        return lms::tool::MovingBuffer{.number = 1, .frames = std::move(frames)};
    };
    CHECK(lms::tool::places_of({buffer({convert, line(9), line(20)}), buffer({line(12), line(20)}),
                                buffer({zeros, convert}), buffer({}),
                                buffer({"site-packages/x.so+0x2 (x+0x2)"})}) ==
          std::vector<std::string>{line(9), line(12), zeros, "", "site-packages/x.so+0x2 (x+0x2)"});
}

TEST_CASE("lms run: buffers of one size and place that moved most are told together") {
    lms::tool::Pages pages;
    pages.push_back(std::make_unique<LivePage>());
    HotBuffers all(pages[0]->moving);
    for (std::uint32_t id = 1; id <= 7; ++id) {
        all.allocated(0, id, id == 7 ? 4 * kMiB : kMiB,
                      std::vector<std::string>{id < 6 ? "weights (a.cu:8)" : "inputs (a.cu:9)"});
        all.moved(0, id, Direction::In, kMiB);
    }
    all.moved(0, 7, Direction::Out, 8 * kMiB);
    const std::string told = lms::tool::summary(pages, "true", 1);
    CHECK_MESSAGE(told.find("allocation: 7 (4M, inputs (a.cu:9); 1M in, 8M out), "
                            "1, 2, 3 and 2 more (1M each, weights (a.cu:8); 5M in, 0B out), "
                            "6 (1M, inputs (a.cu:9); 1M in, 0B out)\n") != std::string::npos,
                  told);
}

TEST_CASE("lms: what may be filled was less at times where more was lacking than the peak says") {
    CHECK(lms::tool::filled(12 * kMiB, 25 * kMiB, 13 * kMiB) == "12M");
    CHECK(lms::tool::filled(12 * kMiB, 25 * kMiB, 17 * kMiB) == "12M (at times less)");
    CHECK(lms::tool::filled(25 * kMiB, 24 * kMiB, 16 * kMiB) == "25M (at times less)");
}

TEST_CASE("lms top: a line that the terminal has no room for is two, with all that it had") {
    lms::tool::Look look;
    for (const std::int32_t process : {7, 8}) {
        auto page = std::make_unique<LivePage>();
        page->process.number = process;
        std::strcpy(page->program, "train");
        std::strcpy(page->policy, "next-use");
        look.pages.push_back(std::move(page));
    }
    for (const std::size_t gpu : {0u, 2u}) {
        look.pages[0]->gpus[gpu].used = 1;
        look.pages[0]->gpus[gpu].budget_bytes = (5 + gpu) * kMiB;
    }
    const auto wide = lms::tool::tables(look, look, 200);
    REQUIRE(wide.size() == 1);
    CHECK(wide[0] == table(look, look));
    CHECK(wide[0].size() == 4);
    const auto narrow = lms::tool::tables(look, look, 80);
    REQUIRE(narrow.size() == 2);
    CHECK(narrow[0].size() == 4);
    CHECK(narrow[1].size() == 3);
    std::string told;
    for (const auto& table : narrow) {
        for (const std::string& line : table) {
            CHECK(line.size() <= 80);
            told += line + '\n';
        }
    }
    for (const char* what : {"BUDGET", "ON HOST", "LAUNCHES", "POLICY", "next-use", "5M", "7M", "0%", "none"})
        CHECK_MESSAGE(told.find(what) != std::string::npos, told);
}
