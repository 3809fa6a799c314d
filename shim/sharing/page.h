// The page in which processes on one GPU say what they have: a file of the user's, mapped by each.
//
// There is no lock. A process writes its own slot alone, and a slot changes hands by one compare-and-swap;
// each works out from a copy of all what is its own (grants.h). So a process may end or stop at any moment
// and holds up none. Whatever bytes the page has, a copy is of tenants within their bounds. (A robust mutex
// of glibc keeps pointers of its holder in the page, which made-up bytes would send anywhere.)
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shim/sharing/tenant.h"
#include "shim/trace/process_name.h"

namespace lms::sharing {

struct PageSlot {
    using Word = std::atomic<std::uint64_t>;
    // Of a ProcessName; `number` is 0 of a free slot, and negative while its fields are written.
    std::atomic<std::int64_t> number;
    Word started, spaces;
    Word seen_ns;  // the process wrote here last; CLOCK_MONOTONIC
    // Of a Tenant:
    Word allocated_bytes, resident_bytes, granted_bytes, pinned_bytes, least_bytes, weight, priority,
        last_use_ns, waiting_since_ns, waited_ns, moved_bytes, link_bytes_per_s, came_ns;
    // Of a HostShare:
    Word promised_bytes, asked_bytes, returnable_bytes, lacking_bytes, group;
};

struct PageLayout {
    static constexpr std::array<char, 8> kMagic{'l', 'm', 's', 's', 'h', 'a', 'r', 'e'};
    static constexpr std::uint32_t kVersion = 5;
    static constexpr std::size_t kSlots = 64;

    std::array<char, 8> magic = kMagic;
    std::uint32_t version = kVersion;
    std::uint32_t bytes = sizeof(PageLayout);
    std::atomic<std::uint32_t> changes;  // counts what others are to look at
    PageSlot::Word turn;                 // a Turn (turns.h), whose holder is a slot
    PageSlot::Word turns_until_ns;       // turns are taken until then
    PageSlot slots[kSlots];
};

// A process in other name spaces, of which cannot be known whether it runs, counts as ended when it has not
// written for so long.
inline constexpr std::chrono::nanoseconds kUnseen = std::chrono::seconds(60);

// Turns are taken for so long, then tried without.
inline constexpr std::chrono::nanoseconds kTurns = std::chrono::seconds(30);

// The file of the page of that name: of this version alone, so that a shim of another is not in the way of
// this one. And the name of the page in such a file; nothing: it is none.
std::string file_of_page(const std::string& name);
std::optional<std::string> page_in_file(std::string_view file);

struct Seen {
    trace::ProcessName process;
    Tenant tenant;
    std::size_t slot;
};

struct PageContents {
    std::vector<Seen> tenants;
    bool takes_turns = false;
    std::size_t holder = ~std::size_t{0};  // the slot of the tenant whose turn it is then
};
// Of the page of that name, by a copy, for those that only look: nothing is made, written or freed. Nothing,
// and why as in open(): it cannot be read. May throw std::bad_alloc.
PageContents look_at_page(int folder, const std::string& name, std::string& problem);

// Any thread, one at a time.
class SharingPage {
  public:
    // Opens the page of that name in `folder`, and makes it where there is none. Null, and why in words that
    // follow the file's name: it is not used then. May throw std::bad_alloc.
    static std::unique_ptr<SharingPage> open(int folder, const std::string& name, std::string& problem);
    ~SharingPage();  // leaves it
    SharingPage(const SharingPage&) = delete;
    SharingPage& operator=(const SharingPage&) = delete;

    // Writes what this process has into its slot, of which it takes one if it has none (any more). False: all
    // slots are taken, and others do not know of it.
    bool write(const Tenant& own) noexcept;
    // Between two writes.
    void write_resident(std::uint64_t bytes) noexcept;
    void write_waits_no_more() noexcept;
    void leave() noexcept;

    // All that run, in the order of their slots; frees the slots of those that have ended. May throw
    // std::bad_alloc.
    std::vector<Seen> tenants() const;
    // All that are on it, whether they run or not. May throw std::bad_alloc.
    std::vector<Seen> entries() const;
    bool is_own(const Seen& seen) const { return seen.process == own_; }

    // Turns are taken until then; at most kTurns from now on.
    std::uint64_t turns_until_ns(std::uint64_t now_ns) const noexcept;
    void take_turns_until(std::uint64_t ns) noexcept { page_->turns_until_ns = ns; }
    // Of a Turn. Passes it on, if it is still `from`.
    std::uint64_t turn() const noexcept { return page_->turn; }
    bool pass_turn(std::uint64_t from, std::uint64_t to) noexcept;

    // The others are to look again.
    // Returns changes() before it.
    std::uint32_t announce() noexcept;
    const std::atomic<std::uint32_t>& changes() const { return page_->changes; }

  private:
    explicit SharingPage(PageLayout* page) : page_(page), own_(trace::this_process()) {}
    PageSlot* own_slot() const noexcept;  // null: it has none, any more
    PageSlot* take_slot() noexcept;

    PageLayout* const page_;
    const trace::ProcessName own_;
    std::atomic<PageSlot*> slot_{nullptr};
};

}  // namespace lms::sharing
