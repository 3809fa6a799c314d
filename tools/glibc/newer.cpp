// What the objects linked here call of glibc newer than 2.28, made of what 2.28 has.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

int status_at(int folder, const char* path, void* status, int flags) {
    return static_cast<int>(syscall(SYS_newfstatat, folder, path, status, flags));
}

// Where glibc has the call, it is used: only that one is right when the machine's clock is set meanwhile.
using ClockWait = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
ClockWait* const real_clock_wait =
    reinterpret_cast<ClockWait*>(dlvsym(RTLD_DEFAULT, "pthread_cond_clockwait", "GLIBC_2.30"));

timespec time_of(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now;
}

}  // namespace

extern "C" {

// libstdc++ counts references without atomic operations while this is set.
char __libc_single_threaded = 0;

pid_t gettid() {
    return static_cast<pid_t>(syscall(SYS_gettid));
}

std::uint32_t arc4random() {
    std::uint32_t value = 0;
    while (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
    }
    return value;
}

int stat(const char* path, struct stat* status) {
    return status_at(AT_FDCWD, path, status, 0);
}
int stat64(const char* path, struct stat64* status) {
    return status_at(AT_FDCWD, path, status, 0);
}
int lstat(const char* path, struct stat* status) {
    return status_at(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat* status) {
    return static_cast<int>(syscall(SYS_fstat, file, status));
}
int fstat64(int file, struct stat64* status) {
    return static_cast<int>(syscall(SYS_fstat, file, status));
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
    if (real_clock_wait) return real_clock_wait(condition, mutex, clock, until);
    constexpr long kSecond = 1'000'000'000;
    const timespec now = time_of(clock);
    timespec wall = time_of(CLOCK_REALTIME);
    wall.tv_sec += until->tv_sec - now.tv_sec;
    wall.tv_nsec += until->tv_nsec - now.tv_nsec;
    if (wall.tv_nsec < 0 || wall.tv_nsec >= kSecond) {
        const long carry = wall.tv_nsec < 0 ? -1 : 1;
        wall.tv_sec += carry;
        wall.tv_nsec -= carry * kSecond;
    }
    return pthread_cond_timedwait(condition, mutex, &wall);
}

void closefrom(int lowest) {
    DIR* const open_files = opendir("/proc/self/fd");
    if (!open_files) return;
    while (const dirent* entry = readdir(open_files)) {
        const int file = std::atoi(entry->d_name);
        if (entry->d_name[0] != '.' && file >= lowest && file != dirfd(open_files)) close(file);
    }
    closedir(open_files);
}

}  // extern "C"
