#include "shim/util/log.h"

#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shim/util/output_file.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

namespace {

// The log as it was before the test, afterwards too.
struct RestoreLog {
    ~RestoreLog() { lms::log::configure(lms::log::Level::Warn, ""); }
};

// What `body` writes to stderr.
template <typename Body>
std::string stderr_of(const Scratch& scratch, Body body) {
    const int saved = dup(STDERR_FILENO);
    const int file = open(scratch.path("stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDERR_FILENO);
    close(file);
    body();
    dup2(saved, STDERR_FILENO);
    close(saved);
    return scratch.get("stderr");
}

// The number under which this process has the file open.
int descriptor_of(const std::string& path) {
    struct stat file;
    REQUIRE(stat(path.c_str(), &file) == 0);
    for (int number = 3; number < 1024; ++number) {
        struct stat open;
        if (fstat(number, &open) == 0 && open.st_dev == file.st_dev && open.st_ino == file.st_ino)
            return number;
    }
    return -1;
}

}  // namespace

TEST_CASE("log: the default is warn, on stderr") {
    const Scratch scratch;
    const std::string text = stderr_of(scratch, [] {
        lms::log::error("no {}", "chunk");
        lms::log::warn("{} of {}", 1, 2);
        lms::log::info("not this");
        lms::log::debug("nor this");
    });
    CHECK(text == "lms: no chunk\nlms: 1 of 2\n");
}

TEST_CASE("log: each level lets through itself and what is graver") {
    const RestoreLog restore;
    const Scratch scratch;
    const std::string all[] = {"lms: e\n", "lms: w\n", "lms: i\n", "lms: d\n"};
    std::string expected;
    for (std::size_t level = 0; level < std::size(lms::log::kLevelNames); ++level) {
        const std::string name(lms::log::kLevelNames[level]);
        if (level > 0) expected += all[level - 1];
        REQUIRE(lms::log::parse_level(name));
        lms::log::configure(*lms::log::parse_level(name), scratch.path("%p-" + name));
        lms::log::error("e");
        lms::log::warn("w");
        lms::log::info("i");
        lms::log::debug("d");
        const std::string file = std::to_string(getpid()) + "-" + name;
        if (level == 0) {
            CHECK_FALSE(std::filesystem::exists(scratch.path(file)));
        } else {
            CHECK(scratch.get(file) == expected);
        }
    }
    CHECK_FALSE(lms::log::parse_level("warning"));
    CHECK_FALSE(lms::log::parse_level(""));
}

TEST_CASE("log: a file that cannot be written is told on stderr, which is used instead") {
    const RestoreLog restore;
    const Scratch scratch;
    const std::string text = stderr_of(scratch, [&] {
        lms::log::configure(lms::log::Level::Info, scratch.path("missing/log"));
        lms::log::info("here");
    });
    CHECK(text == "lms: LMS_LOG: cannot write " + scratch.path("missing/log") +
                      ": No such file or directory; logging to stderr\nlms: here\n");
}

TEST_CASE("log: a child of fork has the file that %p names for it") {
    const RestoreLog restore;
    const Scratch scratch;
    for (const char* name : {"one", "%p"}) {
        lms::log::configure(lms::log::Level::Info, scratch.path(name));
        lms::log::info("parent");
        const pid_t child = support::start_child([] { lms::log::info("child"); });
        CHECK(support::end_of_child(child) == 0);
        lms::log::info("parent");
        const bool same = name[0] == 'o';
        CHECK(scratch.get(same ? name : std::to_string(getpid())) ==
              (same ? "lms: parent\nlms: child\nlms: parent\n" : "lms: parent\nlms: parent\n"));
        if (!same) CHECK(scratch.get(std::to_string(child)) == "lms: child\n");
    }
}

TEST_CASE("log: a message is one line, whatever is put into it, and keeps errno") {
    const Scratch scratch;
    const std::string text = stderr_of(scratch, [] {
        errno = 4711;
        lms::log::warn("a{}b\xC3\xA4", "\n\x1b[2J\r");
        CHECK(errno == 4711);
    });
    stderr_of(scratch, [] {
        close(STDERR_FILENO);
        errno = 4711;
        lms::log::warn("lost");
        CHECK(errno == 4711);
    });
    CHECK(text == "lms: a  [2J b\xC3\xA4\n");
}

TEST_CASE("log: a stderr that nobody reads ends no program, and the program's own signal stays its own") {
    const int saved = dup(STDERR_FILENO);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    lms::log::warn("lost");  // SIGPIPE would end this process

    sigset_t pipe_signal, before, pending;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    lms::log::warn("lost");
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGPIPE) == 0);
    raise(SIGPIPE);
    lms::log::warn("lost");
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGPIPE) == 1);
    int number = 0;
    sigwait(&pipe_signal, &number);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);

    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
}

TEST_CASE("log: lines of several threads do not mix") {
    const RestoreLog restore;
    const Scratch scratch;
    lms::log::configure(lms::log::Level::Info, scratch.path("log"));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([thread] {
            for (int i = 0; i < 200; ++i) lms::log::info("{} {} {}", thread, i, std::string(600, 'x'));
        });
    }
    for (std::thread& thread : threads) thread.join();
    std::multiset<std::string> lines;
    std::ifstream file(scratch.path("log"));
    for (std::string line; std::getline(file, line);) lines.insert(line);
    CHECK(lines.size() == 800);
    for (int thread = 0; thread < 4; ++thread) {
        for (int i = 0; i < 200; ++i) {
            CHECK(lines.count(fmt::format("lms: {} {} {}", thread, i, std::string(600, 'x'))) == 1);
        }
    }
}

TEST_CASE("log: once is true once") {
    std::atomic<bool> said = false;
    CHECK(lms::log::once(said));
    CHECK_FALSE(lms::log::once(said));
}

TEST_CASE("output file: %p is the process, %% a percent sign") {
    const std::string process = std::to_string(getpid());
    CHECK(lms::util::expand_path("/a-%p.%p%%p%x%") == "/a-" + process + "." + process + "%p%x%");
}

TEST_CASE("output file: a relative path is so to the folder in which the process began") {
    const std::string file = std::filesystem::current_path() / "a/b";
    CHECK(lms::util::expand_path("a/b") == file);
    CHECK(support::in_child([&] { return chdir("/") != 0 || lms::util::expand_path("a/b") != file; }) == 0);
}

TEST_CASE("output file: it never writes to a descriptor that has come to mean another file") {
    const Scratch scratch;
    lms::util::OutputFile output;
    REQUIRE(output.open(scratch.path("ours").c_str(), lms::util::OutputFile::Mode::Append) == 0);
    CHECK(output.append("one") == 0);
    const int number = descriptor_of(scratch.path("ours"));
    // What a program that becomes a daemon does: close everything, open files of its own.
    const int opened = open(scratch.path("theirs").c_str(), O_RDWR | O_CREAT, 0600);
    const int theirs = dup2(opened, number);
    close(opened);
    REQUIRE(theirs == number);
    CHECK(output.append("two") == EBADF);
    CHECK(output.write_at(0, "two") == EBADF);
    CHECK(output.truncate(0) == EBADF);
    output.close();
    CHECK(fcntl(theirs, F_GETFD) != -1);
    close(theirs);
    CHECK(scratch.get("ours") == "one");
    CHECK(scratch.get("theirs") == "");
}

TEST_CASE("output file: a named pipe that nobody reads is refused at once, one that is read is written to") {
    using lms::util::OutputFile;
    const Scratch scratch;
    REQUIRE(mkfifo(scratch.path("pipe").c_str(), 0600) == 0);
    for (const auto mode : {OutputFile::Mode::Append, OutputFile::Mode::Truncate}) {
        OutputFile output;
        CHECK(output.open(scratch.path("pipe").c_str(), mode) == ENXIO);
        const int reader = open(scratch.path("pipe").c_str(), O_RDONLY | O_NONBLOCK);
        REQUIRE(output.open(scratch.path("pipe").c_str(), mode) == 0);
        CHECK(output.append("text") == 0);
        char text[8] = {};
        CHECK(read(reader, text, sizeof text) == 4);
        CHECK(std::string(text) == "text");
        close(reader);
        CHECK(output.append("lost") == EPIPE);
    }
}

TEST_CASE("output file: truncating claims the file") {
    using lms::util::OutputFile;
    const Scratch scratch;
    scratch.put("file", "old");
    OutputFile first;
    OutputFile second;
    CHECK(first.open(scratch.path("file").c_str(), OutputFile::Mode::Truncate) == 0);
    CHECK(first.write_at(0, "new") == 0);
    CHECK(second.open(scratch.path("file").c_str(), OutputFile::Mode::Truncate) == EWOULDBLOCK);
    CHECK_FALSE(second.is_open());
    CHECK(scratch.get("file") == "new");
    first.close();
    CHECK(second.open(scratch.path("file").c_str(), OutputFile::Mode::Truncate) == 0);
    CHECK(scratch.get("file") == "");
}

TEST_CASE("output file: a file system without locks will do") {
    using lms::util::OutputFile;
    const Scratch scratch;
    CHECK(support::in_child([&] {
              sock_filter no_locks[] = {
                  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
              };
              const sock_fprog program = {std::size(no_locks), no_locks};
              prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
              if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(1);
              OutputFile output;
              if (output.open(scratch.path("file").c_str(), OutputFile::Mode::Truncate) != 0) _exit(2);
              if (output.append("text") != 0) _exit(3);
          }) == 0);
    CHECK(scratch.get("file") == "text");
}

TEST_CASE("output file: in a folder that everybody may write to no link is followed, elsewhere it is") {
    using lms::util::OutputFile;
    const Scratch scratch;
    scratch.put("secret", "mine");
    REQUIRE(mkdir(scratch.path("folder").c_str(), 0700) == 0);
    const std::string link = scratch.path("folder/link");
    const std::string dangling = scratch.path("folder/dangling");
    const std::string second = scratch.path("folder/second");
    REQUIRE(symlink(scratch.path("secret").c_str(), link.c_str()) == 0);
    REQUIRE(symlink(scratch.path("made").c_str(), dangling.c_str()) == 0);
    REQUIRE(::link(scratch.path("secret").c_str(), second.c_str()) == 0);
    for (const auto mode : {OutputFile::Mode::Append, OutputFile::Mode::Truncate}) {
        for (const mode_t shared : {01777, 0777}) {
            REQUIRE(chmod(scratch.path("folder").c_str(), shared) == 0);
            for (const std::string& path : {link, dangling, second}) {
                CAPTURE(path);
                OutputFile output;
                CHECK(output.open(path.c_str(), mode) == EMLINK);
                CHECK_FALSE(output.is_open());
                CHECK(output.append("text") == EBADF);
            }
            CHECK(scratch.get("secret") == "mine");
            CHECK_FALSE(std::filesystem::exists(scratch.path("made")));
            OutputFile output;
            CHECK(output.open(scratch.path("folder/plain").c_str(), mode) == 0);
        }
    }
    CHECK(std::string(OutputFile::reason(EMLINK)) == "a link in a world-writable folder; expected a file");
    REQUIRE(chmod(scratch.path("folder").c_str(), 0775) == 0);
    for (const std::string& path : {link, dangling, second}) {
        OutputFile output;
        CHECK(output.open(path.c_str(), OutputFile::Mode::Append) == 0);
        CHECK(output.append("+") == 0);
    }
    CHECK(scratch.get("secret") == "mine++");
    CHECK(scratch.get("made") == "+");
}

TEST_CASE("output file: names of every form, and none is inherited") {
    using lms::util::OutputFile;
    const Scratch scratch;
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(scratch.path());
    scratch.put("below/x", "");
    const int free_number = dup(0);
    close(free_number);
    for (const std::string& path : {std::string("name"), std::string("below/name"), scratch.path("whole")}) {
        OutputFile output;
        CHECK(output.open(path.c_str(), OutputFile::Mode::Append) == 0);
        CHECK(fcntl(descriptor_of(path), F_GETFD) == FD_CLOEXEC);
        CHECK(output.append(path) == 0);
        CHECK(scratch.get(std::filesystem::proximate(path)) == path);
    }
    OutputFile output;
    CHECK(output.open("", OutputFile::Mode::Append) == ENOENT);
    CHECK(output.open("below/", OutputFile::Mode::Append) != 0);
    CHECK(output.open("nothing/name", OutputFile::Mode::Append) == ENOENT);
    CHECK(output.open("name/name", OutputFile::Mode::Append) == ENOTDIR);
    CHECK(output.open((std::string(5000, 'x') + "/name").c_str(), OutputFile::Mode::Append) == ENAMETOOLONG);
    CHECK(fcntl(free_number, F_GETFD) == -1);  // the folders' were closed too
    std::filesystem::current_path(before);
}
