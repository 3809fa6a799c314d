#include "tools/simcuda/driver/shared/page.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/message.h"

namespace simcuda::driver::shared {
namespace {

constexpr std::array<char, 8> kMark{'s', 'i', 'm', 'c', 'u', 'd', 'a', 'p'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

Page* joined = nullptr;
Slot* own = nullptr;

Machine own_machine() {
    const Knobs& k = knobs();
    return {k.devices, k.memory, k.host_memory, k.multiprocessors, k.simulated_time, k.h2d_gbps, k.d2h_gbps};
}

// An open file, mapped. Closed and unmapped at the end unless kept.
class File {
  public:
    File(const std::string& path, bool write)
        : file_(write ? ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
                      : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)),
          write_(write) {}
    ~File() {
        if (mapped_ != nullptr && !kept_) ::munmap(mapped_, sizeof(Page));
        if (file_ < 0) return;
        ::flock(file_, LOCK_UN);  // a mapping keeps what is open
        ::close(file_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    bool is_open() const { return file_ >= 0; }
    // Until the end, also that of a process.
    bool lock() const {
        while (::flock(file_, LOCK_EX) != 0)
            if (errno != EINTR) return false;
        return true;
    }
    struct stat status() const {
        struct stat status {};
        ::fstat(file_, &status);
        return status;
    }
    bool grow() const { return ::ftruncate(file_, sizeof(Page)) == 0; }
    Page* map() {
        void* const at =
            ::mmap(nullptr, sizeof(Page), write_ ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, file_, 0);
        mapped_ = at == MAP_FAILED ? nullptr : static_cast<Page*>(at);
        return mapped_;
    }
    Page* keep() {
        kept_ = true;
        return mapped_;
    }

  private:
    const int file_;
    const bool write_;
    Page* mapped_ = nullptr;
    bool kept_ = false;
};

// What is wrong with a file that is to be a page; empty: nothing, or there is nothing in it yet.
std::string wrong_with(const struct stat& status) {
    if (!S_ISREG(status.st_mode)) return "is no ordinary file";
    if (status.st_uid != ::geteuid()) return "is another user's";
    if ((status.st_mode & 077) != 0) return "may be used by other users (mode 0600 is expected)";
    if (status.st_size != 0 && status.st_size < static_cast<off_t>(offsetof(Page, machine)))
        return "is not a page of this driver's";
    return {};
}

std::string wrong_with(const Page& page, const struct stat& status) {
    if (page.mark != kMark) return "is not a page of this driver's";
    if (page.version != kVersion)
        return "is of version " + std::to_string(page.version) + ", not " + std::to_string(kVersion);
    if (page.bytes != sizeof(Page) || status.st_size != static_cast<off_t>(sizeof(Page)))
        return "has another size than its version";
    return {};
}

void begin(Page& page) {
    std::memset(static_cast<void*>(&page), 0, sizeof page);
    pthread_mutexattr_t attributes;
    ::pthread_mutexattr_init(&attributes);
    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    ::pthread_mutex_init(&page.mutex, &attributes);
    ::pthread_mutexattr_destroy(&attributes);
    page.machine = own_machine();
    page.wanted = kNever;
    page.version = kVersion;
    page.bytes = sizeof page;
    page.mark = kMark;
}

bool any_is_alive(const Page& page) {
    return std::ranges::any_of(
        page.slots, [](const Slot& slot) { return slot.process != 0 && is_alive(slot.identity()); });
}

// Under the page's lock: who frees a slot there has looked at it before.
Slot* claim_slot(Page& page) {
    free_slots_of_ended(page);
    const auto free = std::find_if(std::begin(page.slots), std::end(page.slots),
                                   [](const Slot& slot) { return slot.process == 0; });
    if (free == std::end(page.slots)) return nullptr;
    const Identity identity = own_identity();
    for (Number& used : free->used) used = 0;
    for (Number& kernels : free->kernels) kernels = 0;
    free->bound = page.now.load();
    for (Number* none : {&free->work, &free->passed, &free->passed_work}) *none = kNever;
    free->outside = 0;
    free->started = identity.started;
    free->stack = identity.stack;
    free->process = identity.process;
    return &*free;
}

// Empty if the process is on the page now, else what is wrong.
std::string try_to_join(const std::string& path) {
    File file(path, true);
    if (!file.is_open() || !file.lock()) return std::string("cannot be opened: ") + std::strerror(errno);
    struct stat status = file.status();
    if (std::string wrong = wrong_with(status); !wrong.empty()) return wrong;
    const bool empty = status.st_size == 0;
    if (empty && !file.grow()) return std::string("cannot be written: ") + std::strerror(errno);
    Page* const page = file.map();
    if (page == nullptr) return std::string("cannot be mapped: ") + std::strerror(errno);
    if (std::string wrong = empty ? std::string() : wrong_with(*page, status); !wrong.empty()) return wrong;
    if (empty || !any_is_alive(*page)) {
        begin(*page);  // also the lock of a process that ended with the machine
    } else if (page->machine != own_machine()) {
        return "has GPUs of other numbers, memory, speeds or clock than this process is to have";
    }
    const PageLock lock(*page);
    own = claim_slot(*page);
    if (own == nullptr) return "has as many processes as it may";
    joined = file.keep();
    return {};
}

std::uint64_t sum(const Page& page, std::size_t place) {
    std::uint64_t all = 0;
    for (const Slot& slot : page.slots) {
        if (slot.process != 0) all += slot.used[place];
    }
    return all;
}

}  // namespace

void join() {
    const std::string& path = knobs().shared;
    if (path.empty() || joined != nullptr) return;
    const std::string wrong = try_to_join(path);
    if (!wrong.empty())
        message("SIMCUDA_SHARED=%s %s; this process has GPUs of its own", path.c_str(), wrong.c_str());
}

void leave() {
    joined = nullptr;
    own = nullptr;
}

Page* page() {
    return joined;
}

Slot* own_slot() {
    return own;
}

PageLock::PageLock(Page& page) : page_(page) {
    if (::pthread_mutex_lock(&page.mutex) == EOWNERDEAD) ::pthread_mutex_consistent(&page.mutex);
}

PageLock::~PageLock() {
    ::pthread_mutex_unlock(&page_.mutex);
}

void free_slots_of_ended(Page& page) {
    for (Slot& slot : page.slots) {
        if (slot.process != 0 && !is_alive(slot.identity())) slot.process = 0;
    }
}

bool take(std::size_t place, std::uint64_t bytes, std::uint64_t limit) {
    const PageLock lock;
    const auto fits = [&] {
        const std::uint64_t all = sum(*joined, place);
        return all <= limit && bytes <= limit - all;
    };
    if (!fits()) {
        free_slots_of_ended(*joined);
        if (!fits()) return false;
    }
    own->used[place] += bytes;
    return true;
}

void give_back(std::size_t place, std::uint64_t bytes) {
    own->used[place] -= bytes;
}

std::uint64_t used_by_all(std::size_t place) {
    const PageLock lock;
    free_slots_of_ended(*joined);
    return sum(*joined, place);
}

// For libraries beside the program: whether other processes may use its GPUs.
extern "C" __attribute__((visibility("default"))) int simcuda_is_shared() {
    return knobs().shared.empty() ? 0 : 1;
}

std::vector<User> users(std::size_t device) {
    std::vector<User> all;
    const std::string& path = knobs().shared;
    if (path.empty()) return all;
    File file(path, false);
    if (!file.is_open() || !wrong_with(file.status()).empty()) return all;
    if (file.status().st_size < static_cast<off_t>(sizeof(Page))) return all;
    const Page* const page = file.map();
    if (page == nullptr || !wrong_with(*page, file.status()).empty()) return all;
    for (const Slot& slot : page->slots) {
        const User user{slot.process, slot.used[device]};
        if (user.process != 0 && user.bytes != 0 && is_alive(slot.identity())) all.push_back(user);
    }
    std::sort(all.begin(), all.end(), [](const User& a, const User& b) { return a.process < b.process; });
    return all;
}

}  // namespace simcuda::driver::shared
