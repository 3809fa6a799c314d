#include "shim/sharing/page.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "shim/sharing/turns.h"
#include "shim/util/clock.h"
#include "shim/util/keep_errno.h"
#include "shim/util/write_signals.h"

namespace lms::sharing {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 46;

std::string suffix() {
    return fmt::format(".{}", PageLayout::kVersion);
}

using util::now_ns;

class File {
  public:
    File(int folder, const std::string& name, int flags)
        : number_(
              openat(folder, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR)) {}
    ~File() {
        if (number_ >= 0) ::close(number_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    bool is_open() const { return number_ >= 0; }
    int number() const { return number_; }

  private:
    const int number_;
};

// Whole from the moment that it has its name. 0 or an errno.
int make(int folder, const std::string& name) {
    const std::string fresh = fmt::format("{}.{}", name, getpid());
    unlinkat(folder, fresh.c_str(), 0);  // of one that had this number and was killed here
    const File file(folder, fresh, O_CREAT | O_EXCL | O_RDWR);
    if (!file.is_open()) return errno;
    // A page without memory would be a signal at the first write, and one beyond what the program may write
    // is one here.
    const util::NoWriteSignals quiet;
    const auto head = std::make_unique<PageLayout>();
    int problem = posix_fallocate(file.number(), 0, sizeof(PageLayout));
    constexpr std::size_t kHead = offsetof(PageLayout, changes);
    if (problem == 0 && pwrite(file.number(), static_cast<void*>(head.get()), kHead, 0) != kHead)
        problem = EIO;
    if (problem == 0 && linkat(folder, fresh.c_str(), folder, name.c_str(), 0) != 0) problem = errno;
    unlinkat(folder, fresh.c_str(), 0);
    return problem == EEXIST ? 0 : problem;
}

std::string distrusted(int file) {
    struct stat status {};
    if (fstat(file, &status) != 0) return std::strerror(errno);
    if (!S_ISREG(status.st_mode)) return "is no ordinary file";
    if (status.st_uid != geteuid())
        return fmt::format("belongs to user {}, expected user {}", status.st_uid, geteuid());
    if ((status.st_mode & 07777) != 0600)
        return fmt::format("has mode {:04o}, expected 0600", status.st_mode & 07777);
    if (status.st_size != static_cast<off_t>(sizeof(PageLayout)))
        return fmt::format("has {} bytes, expected {}", status.st_size, sizeof(PageLayout));
    return {};
}

std::string unknown(const PageLayout& page) {
    if (page.magic != PageLayout::kMagic) return "is no page of this program's";
    if (page.version != PageLayout::kVersion)
        return fmt::format("has version {}, expected {}", page.version, PageLayout::kVersion);
    if (page.bytes != sizeof(PageLayout))
        return fmt::format("says that it has {} bytes, expected {}", page.bytes, sizeof(PageLayout));
    return {};
}

std::uint64_t at_most(const PageSlot::Word& word, std::uint64_t most) {
    return std::min(word.load(std::memory_order_relaxed), most);
}

Tenant tenant_in(const PageSlot& slot, std::uint64_t now) {
    Tenant tenant;
    tenant.allocated_bytes = at_most(slot.allocated_bytes, kMostBytes);
    tenant.resident_bytes = at_most(slot.resident_bytes, kMostBytes);
    tenant.granted_bytes = at_most(slot.granted_bytes, kMostBytes);
    tenant.pinned_bytes = at_most(slot.pinned_bytes, kMostBytes);
    tenant.least_bytes = at_most(slot.least_bytes, kMostBytes);
    tenant.weight = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, at_most(slot.weight, kMostWeight)));
    tenant.priority = static_cast<std::uint32_t>(at_most(slot.priority, kMostPriority));
    tenant.last_use_ns = at_most(slot.last_use_ns, now);
    tenant.waiting_since_ns = at_most(slot.waiting_since_ns, now);
    tenant.waited_ns = slot.waited_ns;
    tenant.moved_bytes = slot.moved_bytes;
    tenant.link_bytes_per_s = at_most(slot.link_bytes_per_s, kMostBytes);
    tenant.came_ns = at_most(slot.came_ns, now);
    // In this order: what is asked for is promised before it is asked for no more (write()).
    tenant.host.asked_bytes = std::min(slot.asked_bytes.load(), kMostBytes);
    tenant.host.promised_bytes = std::min(slot.promised_bytes.load(), kMostBytes);
    tenant.host.returnable_bytes = at_most(slot.returnable_bytes, kMostBytes);
    tenant.host.lacking_bytes = at_most(slot.lacking_bytes, kMostBytes);
    tenant.host.group = slot.group;
    return tenant;
}

trace::ProcessName process_in(const PageSlot& slot) {
    return {slot.number, slot.started, slot.spaces};
}

bool has_ended(const PageSlot& slot, const trace::ProcessName& process, std::uint64_t now) {
    if (process.number < 0) {  // while it took the slot
        const std::int64_t number = -std::max<std::int64_t>(process.number, -INT32_MAX);
        return trace::process_of(static_cast<pid_t>(number)).started == 0;
    }
    if (process.number > INT32_MAX) return true;
    switch (trace::life_of(process)) {
        case trace::Life::Runs:
            return false;
        case trace::Life::Gone:
            return true;
        case trace::Life::Unknown: {
            // The folder may be older than the machine's start, by which this clock begins anew.
            const std::uint64_t seen = slot.seen_ns;
            return std::max(now, seen) - std::min(now, seen) >= static_cast<std::uint64_t>(kUnseen.count());
        }
    }
    return true;
}

Seen seen_in(const PageLayout& page, const PageSlot& slot, const trace::ProcessName& process,
             std::uint64_t now) {
    return {process, tenant_in(slot, now), static_cast<std::size_t>(&slot - page.slots)};
}

std::uint64_t turns_end(const PageLayout& page, std::uint64_t now_ns) {
    const std::uint64_t until = page.turns_until_ns;
    return until > now_ns + static_cast<std::uint64_t>(kTurns.count()) ? 0 : until;
}

}  // namespace

std::string file_of_page(const std::string& name) {
    return name + suffix();
}

std::optional<std::string> page_in_file(std::string_view file) {
    if (!file.ends_with(suffix())) return std::nullopt;
    return std::string(file.substr(0, file.size() - suffix().size()));
}

PageContents look_at_page(int folder, const std::string& name, std::string& problem) {
    const util::KeepErrno keep;
    const File file(folder, file_of_page(name), O_RDONLY);
    problem = file.is_open() ? distrusted(file.number())
                             : fmt::format("cannot be opened: {}", std::strerror(errno));
    if (!problem.empty()) return {};
    const auto page = std::make_unique<PageLayout>();
    if (pread(file.number(), static_cast<void*>(page.get()), sizeof *page, 0) != sizeof *page) {
        problem = "cannot be read";
        return {};
    }
    problem = unknown(*page);
    PageContents all;
    if (!problem.empty()) return all;
    const std::uint64_t now = now_ns();
    all.takes_turns = turns_end(*page, now) > now;
    all.holder = turn_of(page->turn, now).holder;
    for (const PageSlot& slot : page->slots) {
        const trace::ProcessName process = process_in(slot);
        if (process.number > 0 && !has_ended(slot, process, now))
            all.tenants.push_back(seen_in(*page, slot, process, now));
    }
    return all;
}

std::unique_ptr<SharingPage> SharingPage::open(int folder, const std::string& name, std::string& problem) {
    const util::KeepErrno keep;
    const std::string path = file_of_page(name);
    if (faccessat(folder, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
        if (const int error = make(folder, path)) {
            problem = fmt::format("cannot be made: {}", std::strerror(error));
            return nullptr;
        }
    }
    const File file(folder, path, O_RDWR);
    problem = file.is_open() ? distrusted(file.number())
                             : fmt::format("cannot be opened: {}", std::strerror(errno));
    if (!problem.empty()) return nullptr;
    void* const place =
        mmap(nullptr, sizeof(PageLayout), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
    if (place == MAP_FAILED) {
        problem = fmt::format("cannot be mapped: {}", std::strerror(errno));
        return nullptr;
    }
    auto* const page = static_cast<PageLayout*>(place);
    problem = unknown(*page);
    if (problem.empty()) return std::unique_ptr<SharingPage>(new SharingPage(page));
    munmap(place, sizeof(PageLayout));
    return nullptr;
}

SharingPage::~SharingPage() {
    leave();
    munmap(page_, sizeof(PageLayout));
}

// A slot may have been given to another, if this process was not seen for long.
PageSlot* SharingPage::own_slot() const noexcept {
    PageSlot* const slot = slot_;
    return slot != nullptr && process_in(*slot) == own_ ? slot : nullptr;
}

PageSlot* SharingPage::take_slot() noexcept {
    // A program that has begun anew by exec goes on with what it had.
    for (PageSlot& slot : page_->slots)
        if (process_in(slot) == own_) return slot_ = &slot;
    const std::uint64_t now = now_ns();
    for (PageSlot& slot : page_->slots) {
        std::int64_t free = slot.number;
        if (free != 0 && !has_ended(slot, process_in(slot), now)) continue;
        if (!slot.number.compare_exchange_strong(free, -own_.number)) continue;
        slot.started = own_.started;
        slot.spaces = own_.spaces;
        slot.seen_ns = now;
        slot.number = own_.number;
        return slot_ = &slot;
    }
    return slot_ = nullptr;
}

bool SharingPage::write(const Tenant& own) noexcept {
    const util::KeepErrno keep;
    // A child of fork is not the process that has the slot.
    if (own_.number != getpid()) return false;
    PageSlot* slot = own_slot();
    if (slot == nullptr) slot = take_slot();
    if (slot == nullptr) return false;
    slot->allocated_bytes = own.allocated_bytes;
    slot->resident_bytes = own.resident_bytes;
    slot->granted_bytes = own.granted_bytes;
    slot->pinned_bytes = own.pinned_bytes;
    slot->least_bytes = own.least_bytes;
    slot->weight = own.weight;
    slot->priority = own.priority;
    slot->last_use_ns = own.last_use_ns;
    slot->waiting_since_ns = own.waiting_since_ns;
    slot->waited_ns = own.waited_ns;
    slot->moved_bytes = own.moved_bytes;
    slot->link_bytes_per_s = own.link_bytes_per_s;
    slot->came_ns = own.came_ns;
    slot->promised_bytes = own.host.promised_bytes;
    slot->asked_bytes = own.host.asked_bytes;
    slot->returnable_bytes = own.host.returnable_bytes;
    slot->lacking_bytes = own.host.lacking_bytes;
    slot->group = own.host.group;
    slot->seen_ns = now_ns();
    return true;
}

void SharingPage::write_resident(std::uint64_t bytes) noexcept {
    if (PageSlot* const slot = own_slot()) slot->resident_bytes = bytes;
}

void SharingPage::write_waits_no_more() noexcept {
    if (PageSlot* const slot = own_slot()) slot->waiting_since_ns = 0;
}

void SharingPage::leave() noexcept {
    PageSlot* const slot = own_.number == getpid() ? own_slot() : nullptr;
    if (slot == nullptr) return;
    std::int64_t number = own_.number;
    slot->number.compare_exchange_strong(number, 0);
    slot_ = nullptr;
    announce();
}

std::vector<Seen> SharingPage::tenants() const {
    const util::KeepErrno keep;
    std::vector<Seen> all;
    const std::uint64_t now = now_ns();
    for (PageSlot& slot : page_->slots) {
        const trace::ProcessName process = process_in(slot);
        if (process.number == 0) continue;
        if (has_ended(slot, process, now)) {
            std::int64_t number = process.number;
            slot.number.compare_exchange_strong(number, 0);
        } else if (process.number > 0) {
            all.push_back(seen_in(*page_, slot, process, now));
        }
    }
    return all;
}

std::vector<Seen> SharingPage::entries() const {
    std::vector<Seen> all;
    const std::uint64_t now = now_ns();
    for (PageSlot& slot : page_->slots) {
        const trace::ProcessName process = process_in(slot);
        if (process.number > 0) all.push_back(seen_in(*page_, slot, process, now));
    }
    return all;
}

std::uint64_t SharingPage::turns_until_ns(std::uint64_t now_ns) const noexcept {
    return turns_end(*page_, now_ns);
}

bool SharingPage::pass_turn(std::uint64_t from, std::uint64_t to) noexcept {
    return page_->turn.compare_exchange_strong(from, to);
}

std::uint32_t SharingPage::announce() noexcept {
    const std::uint32_t before = page_->changes++;
    util::wake_all_sharing(page_->changes);
    return before;
}

}  // namespace lms::sharing
