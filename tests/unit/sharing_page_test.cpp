#include "shim/sharing/page.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "shim/sharing/grants.h"
#include "shim/sharing/turns.h"
#include "shim/util/clock.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

namespace {

using namespace lms::sharing;

const std::string kFile = file_of_page("page");

struct Folder {
    Folder() : number(::open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY)) { REQUIRE(number >= 0); }
    ~Folder() { ::close(number); }
    std::unique_ptr<SharingPage> open() const {
        problem.clear();
        return SharingPage::open(number, "page", problem);
    }
    Scratch scratch;
    int number;
    mutable std::string problem;
};

// A process that has written and goes on, or not.
pid_t other(const Folder& folder, std::uint64_t bytes, bool stays) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = support::start_child([&] {
        const auto page = folder.open();
        if (page == nullptr || !page->write({.allocated_bytes = bytes})) ::_exit(1);
        if (::write(ends[1], "x", 1) != 1) ::_exit(1);
        while (stays) ::pause();
        ::raise(SIGKILL);
    });
    char letter;
    REQUIRE(::read(ends[0], &letter, 1) == 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return child;
}

void end(pid_t child) {
    ::kill(child, SIGKILL);
    support::end_of_child(child);
}

}  // namespace

TEST_CASE(
    "sharing page: what a process writes is seen by others while it runs, and freed when it has ended") {
    const Folder folder;
    const auto page = folder.open();
    REQUIRE(page);
    CHECK(page->tenants().empty());
    const Tenant own{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    REQUIRE(page->write(own));
    const pid_t running = other(folder, 100, true), killed = other(folder, 200, false);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(killed), &ended, WEXITED | WNOWAIT) == 0);
    const auto all = page->tenants();
    REQUIRE(all.size() == 2);
    CHECK(page->is_own(all[0]));
    CHECK_FALSE(page->is_own(all[1]));
    const Tenant& seen = all[0].tenant;
    CHECK(seen.allocated_bytes == 1);
    CHECK(seen.resident_bytes == 2);
    CHECK(seen.granted_bytes == 3);
    CHECK(seen.pinned_bytes == 4);
    CHECK(seen.least_bytes == 5);
    CHECK(seen.weight == 6);
    CHECK(seen.priority == 7);
    CHECK(seen.last_use_ns == 8);
    CHECK(seen.waiting_since_ns == 9);
    CHECK(seen.waited_ns == 10);
    CHECK(seen.moved_bytes == 11);
    CHECK(seen.link_bytes_per_s == 12);
    CHECK(seen.came_ns == 13);
    CHECK(all[1].slot == all[0].slot + 1);
    CHECK(all[1].process.number == running);
    CHECK(all[1].tenant.allocated_bytes == 100);
    end(running);
    CHECK(page->tenants().size() == 1);
    support::end_of_child(killed);
    page->leave();
    CHECK(page->tenants().empty());
    const auto changes = page->changes().load();
    page->announce();
    CHECK(page->changes() == changes + 1);
}

TEST_CASE("sharing page: of two that pass a turn on at once one does") {
    const Folder folder;
    const auto page = folder.open(), other_page = folder.open();
    REQUIRE((page && other_page));
    CHECK(page->turn() == 0);
    CHECK(page->pass_turn(0, word_of({3, 5'000'000, 20'000'000})));
    CHECK_FALSE(other_page->pass_turn(0, word_of({4, 5'000'000, 20'000'000})));
    CHECK(turn_of(other_page->turn(), 9'000'000).holder == 3);
    page->take_turns_until(50);
    CHECK(other_page->turns_until_ns(40) == 50);
    page->take_turns_until(~std::uint64_t{0});
    CHECK(other_page->turns_until_ns(40) == 0);
}

TEST_CASE("sharing page: who only looks sees all and leaves no trace") {
    const Folder folder;
    std::string problem;
    CHECK(look_at_page(folder.number, "page", problem).tenants.empty());
    CHECK(problem == "cannot be opened: No such file or directory");
    const auto page = folder.open();
    REQUIRE(page);
    REQUIRE(page->write({.allocated_bytes = 7}));
    const pid_t killed = other(folder, 8, false);
    support::end_of_child(killed);
    const auto now = static_cast<std::uint64_t>(lms::util::Clock::now().time_since_epoch().count());
    const std::string before = folder.scratch.get(kFile);
    auto seen = look_at_page(folder.number, "page", problem);
    CHECK(problem == "");
    REQUIRE(seen.tenants.size() == 1);
    CHECK(page->is_own(seen.tenants[0]));
    CHECK(seen.tenants[0].tenant.allocated_bytes == 7);
    CHECK_FALSE(seen.takes_turns);
    CHECK(folder.scratch.get(kFile) == before);
    REQUIRE(page->pass_turn(0, word_of({seen.tenants[0].slot, now, 1'000'000})));
    page->take_turns_until(now + 60'000'000'000);
    CHECK_FALSE(look_at_page(folder.number, "page", problem).takes_turns);
    page->take_turns_until(now + 20'000'000'000);
    seen = look_at_page(folder.number, "page", problem);
    CHECK(seen.takes_turns);
    CHECK(seen.holder == seen.tenants[0].slot);
    REQUIRE(::chmod(folder.scratch.path(kFile).c_str(), 0666) == 0);
    CHECK(look_at_page(folder.number, "page", problem).tenants.empty());
    CHECK(problem == "has mode 0666, expected 0600");
}

TEST_CASE("sharing page: processes killed at any moment leave no slot taken") {
    const Folder folder;
    const auto page = folder.open();
    REQUIRE(page);
    for (unsigned seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        pid_t children[4];
        for (pid_t& child : children) {
            child = support::start_child([&] {
                const auto mine = folder.open();
                for (std::uint64_t i = 0;; ++i) {
                    if (mine == nullptr || !mine->write({.allocated_bytes = i})) ::_exit(1);
                    if (i % 3 == 0) mine->leave();
                }
            });
        }
        ::usleep(random() % 3000);
        for (const pid_t child : children)
            CHECK((::kill(child, SIGKILL), support::end_of_child(child)) == 128 + 9);
        REQUIRE(page->tenants().empty());
    }
}

TEST_CASE("sharing page: a full page takes nobody, until one has ended") {
    const Folder folder;
    std::vector<pid_t> children;
    for (std::size_t i = 0; i < PageLayout::kSlots; ++i) children.push_back(other(folder, i, true));
    const auto page = folder.open();
    REQUIRE(page);
    CHECK_FALSE(page->write({}));
    CHECK(page->tenants().size() == PageLayout::kSlots);
    end(children.back());
    CHECK(page->write({}));
    for (const pid_t child : children) end(child);
    CHECK(page->tenants().size() == 1);
}

TEST_CASE("sharing page: a program that has begun anew by exec goes on in its slot") {
    const Folder folder;
    const auto before = folder.open(), now = folder.open();
    REQUIRE(before->write({.allocated_bytes = 1}));
    REQUIRE(now->write({.allocated_bytes = 2}));
    const auto all = now->tenants();
    REQUIRE(all.size() == 1);
    CHECK(all[0].tenant.allocated_bytes == 2);
}

TEST_CASE("sharing page: a child of fork is not its parent") {
    const Folder folder;
    auto page = folder.open();
    REQUIRE(page);
    REQUIRE(page->write({.allocated_bytes = 7}));
    CHECK(support::in_child([&] {
              const bool wrote = page->write({.allocated_bytes = 8});
              page.reset();
              return wrote ? 1 : 0;
          }) == 0);
    const auto all = page->tenants();
    REQUIRE(all.size() == 1);
    CHECK(all[0].tenant.allocated_bytes == 7);
}

TEST_CASE("sharing page: what a process left that was killed while it made the page is in nobody's way") {
    const Folder folder;
    folder.scratch.put("page." + std::to_string(getpid()), "half");
    CHECK(folder.open());
    CHECK(folder.problem == "");
}

TEST_CASE("sharing page: a file of another owner, mode, size, kind or version is not used") {
    const Folder folder;
    const std::string path = folder.scratch.path(kFile);
    REQUIRE(folder.open());
    const std::string good = folder.scratch.get(kFile);
    const auto refused = [&](const std::string& bytes, mode_t mode = 0600) {
        ::unlink(path.c_str());
        folder.scratch.put(kFile, bytes);
        ::chmod(path.c_str(), mode);
        CHECK_FALSE(folder.open());
        CHECK(folder.scratch.get(kFile) == bytes);
        return folder.problem;
    };
    const std::string size = std::to_string(sizeof(PageLayout));
    CHECK(refused("") == "has 0 bytes, expected " + size);
    CHECK(refused(good + "x") == "has " + std::to_string(good.size() + 1) + " bytes, expected " + size);
    CHECK(refused(good, 0640) == "has mode 0640, expected 0600");
    CHECK(refused(std::string(good.size(), 'x')) == "is no page of this program's");
    std::string other_version = good;
    other_version[8] = 1;
    CHECK(refused(other_version) == "has version 1, expected " + std::to_string(PageLayout::kVersion));
    ::unlink(path.c_str());
    ::symlink("/dev/zero", path.c_str());
    CHECK_FALSE(folder.open());
    ::unlink(path.c_str());
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK_FALSE(folder.open());
    CHECK(folder.problem == "is no ordinary file");
    ::unlink(path.c_str());
    CHECK(folder.open());
}

TEST_CASE("sharing page: a process in other name spaces counts as long as it has written of late") {
    const Folder folder;
    const auto page = folder.open();
    REQUIRE((page && page->write({})));
    const int file = ::openat(folder.number, kFile.c_str(), O_RDWR);
    const auto put = [&](std::size_t at, std::uint64_t word) {
        const off_t place = static_cast<off_t>(offsetof(PageLayout, slots) + sizeof(PageSlot) + at);
        REQUIRE(::pwrite(file, &word, sizeof word, place) == sizeof word);
    };
    const auto counts = [&](std::int64_t seen_before_ns) {
        put(offsetof(PageSlot, started), 1);
        put(offsetof(PageSlot, spaces), 1);
        const auto now = lms::util::Clock::now().time_since_epoch().count();
        put(offsetof(PageSlot, seen_ns), static_cast<std::uint64_t>(now - seen_before_ns));
        put(offsetof(PageSlot, number), 7);
        return page->tenants().size() == 2;
    };
    CHECK(counts(0));
    CHECK(counts(kUnseen.count() / 2));
    CHECK_FALSE(counts(kUnseen.count()));
    // The clock of another thread, and of the machine before it was started anew.
    CHECK(counts(-1'000'000));
    CHECK_FALSE(counts(-2 * kUnseen.count()));
    ::close(file);
}

TEST_CASE("sharing page: with every byte made up, it costs at most being alone") {
    const Folder folder;
    const auto page = folder.open();
    REQUIRE(page);
    const int file = ::openat(folder.number, kFile.c_str(), O_RDWR);
    for (unsigned seed = 0; seed < 2000; ++seed) {
        std::mt19937_64 random(seed);
        std::string bytes(sizeof(PageLayout), '\0');
        for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? 0 : random());
        REQUIRE(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
        page->write({.allocated_bytes = 1000});
        std::string problem;
        CHECK(look_at_page(folder.number, "page", problem).tenants.size() <= PageLayout::kSlots);
        const auto all = page->tenants();
        std::vector<Tenant> tenants;
        for (const Seen& seen : all) tenants.push_back(seen.tenant);
        std::uint64_t sum = 0;
        for (const std::uint64_t each : grants(tenants, 1 << 30, 1)) sum += each;
        CHECK(sum <= 1 << 30);
        page->announce();
        page->leave();
    }
    ::close(file);
}
