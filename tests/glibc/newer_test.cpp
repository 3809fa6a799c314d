// What stands in for calls newer than glibc 2.28 does what those do.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "tests/support/child.h"
#include "tests/support/process.h"

// As in glibc 2.28: no clocks for condition variables.
extern "C" void* dlvsym(void*, const char*, const char*) noexcept {
    return nullptr;
}

namespace {

constexpr long kSecond = 1'000'000'000;

timespec in(clockid_t clock, long nanoseconds) {
    timespec time{};
    clock_gettime(clock, &time);
    const long sum = time.tv_nsec + nanoseconds;
    return {time.tv_sec + sum / kSecond, sum % kSecond};
}

bool before(const timespec& left, const timespec& right) {
    return left.tv_sec != right.tv_sec ? left.tv_sec < right.tv_sec : left.tv_nsec < right.tv_nsec;
}

class Waiting {
  public:
    int until(clockid_t clock, const timespec& time) {
        pthread_mutex_lock(&mutex_);
        int result = 0;
        while (!told_ && result == 0) result = pthread_cond_clockwait(&condition_, &mutex_, clock, &time);
        pthread_mutex_unlock(&mutex_);
        return result;
    }
    void tell() {
        pthread_mutex_lock(&mutex_);
        told_ = true;
        pthread_cond_signal(&condition_);
        pthread_mutex_unlock(&mutex_);
    }

  private:
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
    bool told_ = false;
};

}  // namespace

TEST_CASE("newer: a wait by a clock ends at that clock's time, not before") {
    // Over the edges of a second, from wherever in one this begins.
    for (const long nanoseconds : {1L, kSecond / 100, kSecond / 3, kSecond / 3, kSecond / 3, kSecond - 1}) {
        const timespec end = in(CLOCK_MONOTONIC, nanoseconds);
        CHECK(Waiting().until(CLOCK_MONOTONIC, end) == ETIMEDOUT);
        // (The two clocks may be a little apart in speed.)
        CHECK_FALSE(before(in(CLOCK_MONOTONIC, kSecond / 1000), end));
    }
    CHECK(Waiting().until(CLOCK_REALTIME, in(CLOCK_REALTIME, kSecond / 100)) == ETIMEDOUT);
    CHECK(Waiting().until(CLOCK_MONOTONIC, {0, 0}) == ETIMEDOUT);
}

TEST_CASE("newer: a wait by a clock ends when it is told to") {
    Waiting waiting;
    std::thread teller([&] { waiting.tell(); });
    CHECK(waiting.until(CLOCK_MONOTONIC, in(CLOCK_MONOTONIC, 1000 * kSecond)) == 0);
    teller.join();
}

TEST_CASE("newer: the status of files and links") {
    const std::string file = support::scratch_file("file"), link = support::scratch_file("link");
    std::ofstream(file) << "12345";
    std::filesystem::create_symlink(file, link);
    const int open_file = open(file.c_str(), O_RDONLY);
    const auto is_the_file = [](const auto& status) {
        return S_ISREG(status.st_mode) && status.st_size == 5;
    };
    struct stat by_name {
    }, by_link{}, by_number{}, status{};
    CHECK(stat(file.c_str(), &by_name) == 0);
    CHECK(stat(link.c_str(), &by_link) == 0);
    CHECK(fstat(open_file, &by_number) == 0);
    for (const struct stat& each : {by_name, by_link, by_number}) CHECK(is_the_file(each));
    struct stat64 by_link_64 {
    }, by_number_64{};
    CHECK(stat64(link.c_str(), &by_link_64) == 0);
    CHECK(fstat64(open_file, &by_number_64) == 0);
    for (const struct stat64& each : {by_link_64, by_number_64}) CHECK(is_the_file(each));
    REQUIRE(lstat(link.c_str(), &status) == 0);
    CHECK(S_ISLNK(status.st_mode));
    CHECK(stat("/nonexistent", &status) == -1);
    CHECK(errno == ENOENT);
    close(open_file);
    CHECK(fstat(open_file, &status) == -1);
    CHECK(errno == EBADF);
}

TEST_CASE("newer: files are closed from a number on") {
    const pid_t child = support::start_child([] {
        for (const int file : {20, 21, 300})
            if (dup2(STDERR_FILENO, file) < 0) return 1;
        closefrom(21);
        if (fcntl(20, F_GETFD) < 0) return 2;
        return fcntl(21, F_GETFD) < 0 && fcntl(300, F_GETFD) < 0 ? 0 : 3;
    });
    CHECK(support::end_of_child(child) == 0);
}

TEST_CASE("newer: threads have numbers of their own, and random numbers differ") {
    CHECK(gettid() == getpid());
    pid_t other = 0;
    std::thread([&] { other = gettid(); }).join();
    CHECK(other != getpid());
    std::set<std::uint32_t> drawn;
    for (int i = 0; i < 100; ++i) drawn.insert(arc4random());
    CHECK(drawn.size() > 90);
}
