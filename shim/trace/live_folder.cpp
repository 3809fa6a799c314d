#include "shim/trace/live_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>

#include "shim/util/bounds.h"
#include "shim/util/clock.h"
#include "shim/util/keep_errno.h"
#include "shim/util/write_signals.h"

namespace lms::trace {
namespace {

bool is_ours(int folder) {
    struct stat status;
    return fstat(folder, &status) == 0 && status.st_uid == geteuid() &&
           (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

int open_ours(const std::string& path) {
    mkdir(path.c_str(), S_IRWXU);
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && is_ours(folder)) return folder;
    if (folder >= 0) ::close(folder);
    return -1;
}

// So often at most: a process that was killed in the middle of a change never ends it.
constexpr int kLooks = 8;

std::uint64_t changes_of(int file) {
    constexpr std::size_t kAt = offsetof(LivePage, moving) + offsetof(LiveBuffers, changes);
    std::uint64_t changes = 1;
    return pread(file, &changes, sizeof changes, kAt) == sizeof changes ? changes : 1;
}

// The buffers that move most are read together or not at all, and the counters after them: what a buffer has
// moved is counted before it is told of that.
bool read_whole(int file, LivePage& page) {
    constexpr off_t kCounters = offsetof(LivePage, counters);
    for (int look = 0; look < kLooks; ++look) {
        const std::uint64_t before = changes_of(file);
        if (pread(file, &page, sizeof page, 0) != sizeof page ||
            pread(file, &page.counters, sizeof page.counters, kCounters) != sizeof page.counters)
            return false;
        if (before % 2 == 0 && changes_of(file) == before) return true;
    }
    for (LiveBuffer& buffer : page.moving.buffers) buffer.number = 0;
    return true;
}

// False where another keeps it for longer than one takes that goes on.
bool lock(int file) {
    const auto deadline = util::Clock::now() + bounds::kLiveFolder;
    while (flock(file, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return false;
        if (util::Clock::now() >= deadline) return false;
        util::pause(bounds::kFolderLook);
    }
    return true;
}

std::unique_ptr<LivePage> read_page(int folder, const char* name) {
    const int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return nullptr;
    auto page = std::make_unique<LivePage>();
    const bool whole = read_whole(file, *page);
    ::close(file);
    if (!whole || page->magic != LivePage::kMagic || page->version != LivePage::kVersion) return nullptr;
    page->program[sizeof page->program - 1] = '\0';
    page->policy[sizeof page->policy - 1] = '\0';
    page->stats_path[sizeof page->stats_path - 1] = '\0';
    page->request.policy[sizeof page->request.policy - 1] = '\0';
    page->request.share[sizeof page->request.share - 1] = '\0';
    page->request.trace_path[sizeof page->request.trace_path - 1] = '\0';
    for (LiveBuffer& buffer : page->moving.buffers) buffer.call_site[LiveBuffer::kSiteBytes - 1] = '\0';
    return name_of(*page) == name ? std::move(page) : nullptr;
}

}  // namespace

// Jobs of cron and of `su` have no XDG_RUNTIME_DIR, and are to be found beside those of a shell that has one:
// /run/user/UID by systemd (pam_systemd(8)).
std::vector<std::string> live_folder_places(const char* runtime, uid_t user) {
    const std::string own = "/lmsshim-" + std::to_string(user);
    std::vector<std::string> places;
    if (runtime != nullptr && runtime[0] == '/') places.push_back(runtime + own);
    places.push_back("/run/user/" + std::to_string(user) + own);
    places.push_back("/dev/shm" + own);
    return places;
}

LiveFolder::LiveFolder() noexcept : folder_(-1) {
    const util::KeepErrno keep;
    try {
        for (const std::string& place : live_folder_places(secure_getenv("XDG_RUNTIME_DIR"), geteuid())) {
            folder_ = open_ours(place);
            if (is_open()) return;
        }
    } catch (const std::exception&) {  // out of memory
    }
}

LiveFolder::~LiveFolder() {
    const util::KeepErrno keep;
    if (is_open()) ::close(folder_);
}

int LiveFolder::create(const std::string& name) const noexcept {
    const int file =
        openat(folder_, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (file < 0) return -1;
    // A page without memory would be a signal at the first count, and one beyond what the program may write
    // is one here.
    const util::NoWriteSignals quiet;
    if (const int problem = posix_fallocate(file, 0, sizeof(OwnPage))) {
        ::close(file);
        remove(name);
        errno = problem;
        return -1;
    }
    return file;
}

void LiveFolder::remove(const std::string& name) const noexcept {
    unlinkat(folder_, name.c_str(), 0);
}

std::vector<std::unique_ptr<LivePage>> LiveFolder::pages() const {
    const util::KeepErrno keep;
    std::vector<std::unique_ptr<LivePage>> found;
    const int again = is_open() ? openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(again < 0 ? nullptr : fdopendir(again), closedir);
    if (!listing) {
        if (again >= 0) ::close(again);
        return found;
    }
    while (const dirent* const entry = readdir(listing.get())) {
        if (auto page = read_page(folder_, entry->d_name)) found.push_back(std::move(page));
    }
    return found;
}

std::unique_ptr<LivePage, LiveFolder::Unshare> LiveFolder::share_with(pid_t process,
                                                                      std::string& problem) const {
    const std::string name = text_of(process_of(process));
    const int file =
        is_open() ? openat(folder_, name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK) : -1;
    if (file < 0) {
        problem = "no process " + std::to_string(process) + " of yours runs under the shim";
        return nullptr;
    }
    // Tools one after the other; the lock goes with them.
    if (!lock(file)) {
        problem = "another lms has been asking process " + std::to_string(process) +
                  " for five seconds; is it stopped?";
        ::close(file);
        return nullptr;
    }
    struct stat status {};
    std::uint32_t version = 0;
    const bool known = fstat(file, &status) == 0 &&
                       pread(file, &version, sizeof version, offsetof(LivePage, version)) == sizeof version &&
                       version == LivePage::kVersion && status.st_size >= static_cast<off_t>(sizeof(OwnPage));
    void* const place =
        known ? mmap(nullptr, sizeof(OwnPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (place == MAP_FAILED) {
        problem = known ? std::strerror(errno)
                        : "process " + std::to_string(process) +
                              " runs under a shim of another version (page " + std::to_string(version) +
                              "; this lms knows " + std::to_string(LivePage::kVersion) + ")";
        ::close(file);
        return nullptr;
    }
    // Not closed: that would end the lock.
    return std::unique_ptr<LivePage, Unshare>(static_cast<LivePage*>(place));
}

void LiveFolder::Unshare::operator()(LivePage* page) const noexcept {
    munmap(page, sizeof(OwnPage));
}

bool LiveFolder::is_gone(const LivePage& page) const {
    const Life life = life_of(page.process);
    return life == Life::Unknown ? nobody_has(name_of(page)) : life == Life::Gone;
}

// The kernel gives a lease for reading where nobody has the file open or mapped to write, as the process does
// that counts in it, wherever that is. Who opens it during the lease has the holder sent a signal: one that
// nobody minds.
bool LiveFolder::nobody_has(const std::string& name) const noexcept {
    const util::KeepErrno keep;
    const int file = openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return errno == ENOENT;
    const bool nobody = fcntl(file, F_SETSIG, SIGURG) == 0 && fcntl(file, F_SETLEASE, F_RDLCK) == 0;
    ::close(file);
    return nobody;
}

void LiveFolder::clean() const {
    const util::KeepErrno keep;
    for (const auto& page : pages()) {
        // Whoever waits for it takes it away; unless he is gone too.
        if (page->run != ProcessName{} && life_of(page->run) != Life::Gone) continue;
        if (!is_gone(*page)) continue;
        take_away(*page);
    }
}

std::unique_ptr<LivePage> LiveFolder::take_away(const LivePage& seen) const {
    auto left = read_page(folder_, name_of(seen).c_str());
    if (left && left->ended_ns == 0 && life_of(left->process) != Life::Unknown) replace_stats(*left);
    remove(name_of(seen));
    return left;
}

std::string name_of(const LivePage& page) {
    return text_of(page.process);
}

}  // namespace lms::trace
