// The page that a process shares with tools, and the folder that it is in.
#include "shim/trace/live_page.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "shim/trace/live_folder.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"
#include "tools/lms/summary.h"

using namespace lms::trace;
namespace fs = std::filesystem;

namespace {

// A folder for live pages, that of this process's user or of nobody.
class Runtime {
  public:
    Runtime() { setenv("XDG_RUNTIME_DIR", scratch_.path().c_str(), 1); }
    ~Runtime() { unsetenv("XDG_RUNTIME_DIR"); }

    fs::path folder() const { return scratch_.path("lmsshim-" + std::to_string(geteuid())); }
    std::size_t files() const {
        return static_cast<std::size_t>(
            std::distance(fs::directory_iterator(folder()), fs::directory_iterator()));
    }
    const Scratch& scratch() const { return scratch_; }

  private:
    Scratch scratch_;
};

// A child that has published, counted, and waits to be killed.
pid_t killed_after(const std::string& stats_path, std::uint64_t launches) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = support::start_child([&] {
        publish(stats_path);
        add(counters().launches, launches);
        support::write_report(ends[1], "x");
        pause();
    });
    char ready;
    CHECK(read(ends[0], &ready, 1) == 1);
    close(ends[0]);
    close(ends[1]);
    CHECK(LiveFolder().pages().size() == 1);
    kill(child, SIGKILL);
    support::end_of_child(child);
    return child;
}

}  // namespace

TEST_CASE("live folder: a shell and a job of cron look in the same places") {
    using Places = std::vector<std::string>;
    CHECK(live_folder_places("/run/user/7", 7) ==
          Places{"/run/user/7/lmsshim-7", "/run/user/7/lmsshim-7", "/dev/shm/lmsshim-7"});
    CHECK(live_folder_places(nullptr, 7) == Places{"/run/user/7/lmsshim-7", "/dev/shm/lmsshim-7"});
    CHECK(live_folder_places("not/absolute", 7) == live_folder_places(nullptr, 7));
}

TEST_CASE("live page: what a process counts is seen by others while it runs") {
    const Runtime runtime;
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    int back[2];
    REQUIRE(pipe(back) == 0);
    const pid_t child = support::start_child([&] {
        add(counters().launches, 2);
        publish("/nowhere/stats");
        add(counters().launches, 3);
        set(live_gpu(1).used, 1);
        set(live_gpu(1).budget_bytes, 1ull << 40);
        support::write_report(ends[1], "x");
        char go;
        if (read(back[0], &go, 1) != 1) _exit(1);
        withdraw();
    });
    char ready;
    REQUIRE(read(ends[0], &ready, 1) == 1);
    auto pages = LiveFolder().pages();
    REQUIRE(pages.size() == 1);
    CHECK(pages[0]->process == process_of(child));
    CHECK(pages[0]->counters.launches == 5);
    CHECK(pages[0]->gpus[1].budget_bytes == 1ull << 40);
    CHECK(std::string(pages[0]->stats_path) == "/nowhere/stats");
    CHECK(!LiveFolder().is_gone(*pages[0]));
    const auto json = to_json(*pages[0]);
    CHECK(json["launches"] == 5);
    REQUIRE(json["gpus"].size() == 1);
    CHECK(json["gpus"][0]["gpu"] == 1);
    struct stat status;
    REQUIRE(stat((runtime.folder() / name_of(*pages[0])).c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    REQUIRE(stat(runtime.folder().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
    support::write_report(back[1], "x");
    CHECK(support::end_of_child(child) == 0);
    CHECK(runtime.files() == 0);
    for (const int end : {ends[0], ends[1], back[0], back[1]}) close(end);
}

TEST_CASE("live page: of a process that was killed, the next one puts the counters where they were to go") {
    const Runtime runtime;
    const std::string stats = runtime.scratch().path("stats");
    runtime.scratch().put("stats", "as it was made when the counters began");
    killed_after(stats, 7);
    REQUIRE(runtime.files() == 1);
    LiveFolder().clean();
    CHECK(runtime.files() == 0);
    CHECK(nlohmann::json::parse(runtime.scratch().get("stats"))["launches"] == 7);
}

TEST_CASE("live page: of a process that ends as its page is looked at, the counters stay as it wrote them") {
    const Runtime runtime;
    const std::string stats = runtime.scratch().path("stats");
    int ends[2], back[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(pipe(back) == 0);
    const pid_t child = support::start_child([&] {
        publish(stats);
        support::write_report(ends[1], "x");
        char go;
        if (read(back[0], &go, 1) != 1) _exit(1);
        add(counters().launches, 7);
        if (write_stats(own_page.page, stats) != 0) _exit(1);
        withdraw();
    });
    char ready;
    REQUIRE(read(ends[0], &ready, 1) == 1);
    const auto seen = LiveFolder().pages();
    REQUIRE(seen.size() == 1);
    support::write_report(back[1], "x");
    CHECK(support::end_of_child(child) == 0);
    REQUIRE(LiveFolder().is_gone(*seen[0]));
    CHECK(LiveFolder().take_away(*seen[0]) == nullptr);
    CHECK(nlohmann::json::parse(runtime.scratch().get("stats"))["launches"] == 7);
    for (const int end : {ends[0], ends[1], back[0], back[1]}) close(end);
}

TEST_CASE("live page: what was to get the counters and is no file any more gets none") {
    const Runtime runtime;
    const std::string stats = runtime.scratch().path("stats");
    killed_after(stats, 7);
    LiveFolder().clean();
    CHECK(!fs::exists(stats));
    runtime.scratch().put("other", "of somebody else");
    fs::create_symlink("other", stats);
    killed_after(stats, 7);
    LiveFolder().clean();
    CHECK(runtime.scratch().get("other") == "of somebody else");
}

TEST_CASE("live page: one for which lms run waits is left to it, unless that is gone") {
    const Runtime runtime;
    setenv("LMSSHIM_RUN", text_of(this_process()).c_str(), 1);
    killed_after("", 1);
    LiveFolder().clean();
    CHECK(runtime.files() == 1);
    unsetenv("LMSSHIM_RUN");
    fs::remove_all(runtime.folder());

    // One that had the number of a later process.
    ProcessName gone = this_process();
    --gone.started;
    setenv("LMSSHIM_RUN", text_of(gone).c_str(), 1);
    killed_after("", 1);
    LiveFolder().clean();
    CHECK(runtime.files() == 0);
    unsetenv("LMSSHIM_RUN");
}

TEST_CASE(
    "live page: lms run takes the pages of its own run, not those of a run of its number elsewhere or "
    "before") {
    const Runtime runtime;
    ProcessName before = this_process(), elsewhere = before;
    --before.started;
    ++elsewhere.spaces;
    for (const ProcessName& run : {before, elsewhere, this_process()}) {
        setenv("LMSSHIM_RUN", text_of(run).c_str(), 1);
        const pid_t child = support::start_child([] { publish(""); });
        CHECK(support::end_of_child(child) == 0);
        CHECK(lms::tool::take_pages(this_process()).size() == (run == this_process() ? 1 : 0));
    }
    unsetenv("LMSSHIM_RUN");
}

TEST_CASE("live page: the name of a process is read as it is written, and what is none names none") {
    const ProcessName process{4194304, ~std::uint64_t{0} - 1, ~std::uint64_t{0}};
    CHECK(parse_process(text_of(process).c_str()) == process);
    for (const char* const text : {"", "12", "12.3", "a.b.c"}) CHECK(parse_process(text) == ProcessName{});
    CHECK(life_of(this_process()) == Life::Runs);
    CHECK(life_of({}) == Life::Unknown);
}

TEST_CASE("live page: a process whose main thread has ended runs while another of its threads does") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = support::start_child([&] {
        std::thread([&, main = pthread_self()] {
            pthread_join(main, nullptr);
            if (write(ends[1], "x", 1) == 1) pause();
        }).detach();
        syscall(SYS_exit, 0);  // of this thread alone
    });
    char letter;
    REQUIRE(read(ends[0], &letter, 1) == 1);
    const ProcessName process = process_of(child);
    CHECK(process.started != 0);
    CHECK(life_of(process) == Life::Runs);
    kill(child, SIGKILL);
    siginfo_t ended{};
    REQUIRE(waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
    CHECK(life_of(process) == Life::Gone);
    support::end_of_child(child);
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE("live page: one of other name spaces is not written to, and goes once nobody has it") {
    const Runtime runtime;
    const std::string stats = runtime.scratch().path("stats");
    runtime.scratch().put("stats", "another file at that path");
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    // A process of the same number and time as this one, in a container that has the same folder.
    ProcessName other = this_process();
    ++other.spaces;
    const pid_t child = support::start_child([&] {
        publish(stats);
        const std::string name = name_of(own_page.page);
        own_page.page.process = other;
        fs::rename(runtime.folder() / name, runtime.folder() / name_of(own_page.page));
        support::write_report(ends[1], "x");
        pause();
    });
    char ready;
    REQUIRE(read(ends[0], &ready, 1) == 1);
    for (const int end : ends) close(end);
    std::string problem;
    CHECK(LiveFolder().share_with(getpid(), problem) == nullptr);
    CHECK(problem == "no process " + std::to_string(getpid()) + " of yours runs under the shim");
    LiveFolder().clean();
    CHECK(LiveFolder().pages().size() == 1);
    // This process has a page of its own beside that.
    CHECK(support::in_child([&] {
              publish("");
              return LiveFolder().pages().size() == 2 ? 0 : 1;
          }) == 0);
    kill(child, SIGKILL);
    support::end_of_child(child);
    LiveFolder().clean();
    CHECK(LiveFolder().pages().empty());
    CHECK(runtime.scratch().get("stats") == "another file at that path");
}

TEST_CASE("live page: a child of fork counts for itself") {
    const Runtime runtime;
    CHECK(support::in_child([] {
              publish("");
              add(counters().launches, 5);
              const int child = support::in_child([] {
                  if (counters().launches != 0) return 1;
                  add(counters().launches, 100);
                  publish("");
                  return LiveFolder().pages().size() == 2 ? 0 : 2;
              });
              if (child != 0) return child;
              return counters().launches == 5 ? 0 : 3;
          }) == 0);
}

TEST_CASE("live page: a folder that others own or may enter is not used") {
    const Runtime runtime;
    fs::create_directory(runtime.folder());
    fs::permissions(runtime.folder(), fs::perms::owner_all | fs::perms::others_exec);
    CHECK(support::in_child([&] {
              publish("");
              add(counters().launches, 1);
              const bool unused = runtime.files() == 0;
              withdraw();
              return unused && counters().launches == 1 ? 0 : 1;
          }) == 0);
    fs::remove(runtime.folder());
    fs::create_directory_symlink(runtime.scratch().path(), runtime.folder());
    CHECK(support::in_child([&] {
              publish("");
              const bool unused = runtime.files() == 1;  // the link itself
              withdraw();
              return unused ? 0 : 1;
          }) == 0);
}

TEST_CASE("live page: files that are none are passed over") {
    const Runtime runtime;
    killed_after("", 1);
    const std::string page =
        runtime.scratch().get("lmsshim-" + std::to_string(geteuid()) + "/" +
                              fs::directory_iterator(runtime.folder())->path().filename().string());
    fs::remove_all(runtime.folder());
    CHECK(LiveFolder().pages().empty());
    const std::string folder = "lmsshim-" + std::to_string(geteuid()) + "/";
    runtime.scratch().put(folder + "1.2.3", page);                           // another's name
    runtime.scratch().put(folder + "3.4.5", page.substr(0, 100));            // cut short
    runtime.scratch().put(folder + "5.6.7", std::string(page.size(), 'x'));  // of another kind
    fs::create_directory(runtime.folder() / "7.8.9");
    CHECK(LiveFolder().pages().empty());
    LiveFolder().clean();
    CHECK(runtime.files() == 4);
}

TEST_CASE("live page: threads that count while the page becomes a shared one lose at most a few") {
    const Runtime runtime;
    CHECK(support::in_child([] {
              std::atomic<bool> stop = false;
              std::uint64_t counted = 0;
              std::thread counter([&] {
                  for (; !stop; ++counted) add(counters().launches);
              });
              publish("");
              stop = true;
              counter.join();
              const std::uint64_t seen = LiveFolder().pages().at(0)->counters.launches;
              return seen <= counted && seen == counters().launches ? 0 : 1;
          }) == 0);
}
