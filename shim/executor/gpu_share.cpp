#include "shim/executor/gpu_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "shim/sharing/folder.h"
#include "shim/sharing/grants.h"
#include "shim/trace/live_page.h"
#include "shim/util/bounds.h"
#include "shim/util/log.h"
#include "shim/util/units.h"

namespace lms::executor {
namespace {

// The link is saturated if so much of what it carries is moved, in so many windows one behind the other.
constexpr std::uint64_t kSaturatedPercent = 85;
constexpr unsigned kSaturatedWindows = 2;

constexpr std::uint64_t ns(std::chrono::nanoseconds length) {
    return static_cast<std::uint64_t>(length.count());
}

template <typename Of>
std::uint64_t sum(std::span<const sharing::Tenant> tenants, Of of) {
    std::uint64_t all = 0;
    for (const sharing::Tenant& each : tenants) all += of(each);
    return all;
}

std::uint64_t link_speed(std::span<const sharing::Tenant> tenants) {
    std::uint64_t most = 0;
    for (const sharing::Tenant& each : tenants) most = std::max(most, each.link_bytes_per_s);
    return most;
}

// What moves meanwhile changes the sum of what all have by so much: such differences are no news.
std::uint64_t tolerance(std::uint64_t capacity_bytes) {
    return capacity_bytes / 32;
}

bool differs(std::uint64_t a, std::uint64_t b, std::uint64_t by) {
    return (a > b ? a - b : b - a) > by;
}

std::string name_of(std::span<const char, 16> uuid) {
    std::string name = "gpu.";
    for (const char byte : uuid) name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return name;
}

}  // namespace

std::unique_ptr<GpuShare> GpuShare::open(int device, std::span<const char, 16> uuid,
                                         const util::ShareTerms& terms, const std::string& path,
                                         const util::GpuClock& clock) noexcept try {
    if (!terms.shares) return nullptr;
    const sharing::SharingFolder folder(path);
    std::string problem = folder.problem();
    std::unique_ptr<sharing::SharingPage> page;
    if (problem.empty()) {
        const std::string name = name_of(uuid);
        page = sharing::SharingPage::open(folder.number(), name, problem);
        if (page && !page->write({.weight = terms.weight, .priority = terms.priority}))
            problem = "has no free slot";
        if (!problem.empty()) problem = fmt::format("its page {} {}", name, problem);
    }
    if (!problem.empty()) {
        log::write(terms.asked ? log::Level::Warn : log::Level::Info,
                   "GPU {} is not shared: {}; other processes do not make room", device, problem);
        return nullptr;
    }
    page->announce();
    return std::unique_ptr<GpuShare>(new GpuShare(device, std::move(page), terms, clock));
} catch (const std::exception&) {
    return nullptr;  // out of host memory: as if it were alone
}

void GpuShare::set_terms(const util::ShareTerms& terms) noexcept {
    weight_ = terms.weight;
    priority_ = terms.priority;
    least_bytes_ = terms.least_bytes;
    page_->announce();
}

bool GpuShare::is_due() const noexcept {
    // Where processes come in the order of a simulated time, what others have done is told by then.
    const std::uint64_t simulated = clock_.spend_ns ? clock_.now_ns() : 0;
    if (page_->changes().load(std::memory_order_relaxed) != seen_changes_.load(std::memory_order_relaxed))
        return true;
    if (!is_shared()) return false;
    return (simulated ? simulated : clock_.now_ns()) >= next_look_ns_.load(std::memory_order_relaxed);
}

std::optional<std::uint64_t> GpuShare::look(const Levels& own) noexcept try {
    if (looking_.exchange(true)) return std::nullopt;
    const struct Over {
        ~Over() { looking = false; }
        std::atomic<bool>& looking;
    } over{looking_};
    return grant_of(own);
} catch (const std::exception&) {
    return std::nullopt;  // out of host memory
}

void GpuShare::announce() noexcept {
    // What another has announced meanwhile is still to be looked at.
    const std::uint32_t before = page_->announce();
    std::uint32_t seen = before;
    seen_changes_.compare_exchange_strong(seen, before + 1);
}

void GpuShare::pause(util::Clock::duration most) const {
    if (clock_.spend_ns) return clock_.spend_ns(ns(most));
    util::sleep_on_shared(page_->changes(), seen_changes_.load(), most);
}

void GpuShare::await_news(const std::atomic<bool>& ended, util::Clock::duration most) const {
    const std::uint32_t now = page_->changes();
    if (!ended) util::sleep_on_shared(page_->changes(), now, std::min(most, helper_looks_every()));
}

util::Clock::duration GpuShare::helper_looks_every() const noexcept {
    const bool others = is_shared() || page_->changes() != seen_changes_;
    return is_turn_watched() ? bounds::kTurnUse : others ? bounds::kIdleLook : bounds::kAlone;
}

bool GpuShare::is_left_to_helper() const noexcept {
    const std::uint64_t now_ns = clock_.now_ns();
    return now_ns - std::min<std::uint64_t>(now_ns, last_use_ns_) >= ns(helper_looks_every()) &&
           (is_turn_watched() || is_due());
}

GpuShare::Waiter::Waiter(GpuShare& share, std::uint64_t since_ns) : share_(share), since_ns_(since_ns) {
    ++share_.waiting_;
}

GpuShare::Waiter::~Waiter() {
    share_.waited_ns_ += waited_ns();
    trace::set(trace::live_gpu(share_.device_).turn_wait_ns, share_.waited_ns_);
    // This process may not look again for long, and others would give it turns that it does not use.
    if (--share_.waiting_ == 0) share_.page_->write_waits_no_more();
}

std::uint64_t GpuShare::Waiter::waited_ns() const {
    return share_.look_ns_ - std::min<std::uint64_t>(share_.look_ns_, since_ns_);
}

bool GpuShare::Waiter::for_too_long() const {
    return waited_ns() >= ns(bounds::kTurn);
}

// Turns begin where the link is what holds all up.
void GpuShare::watch_link(std::span<const sharing::Tenant> tenants, std::uint64_t now_ns) {
    if (now_ns - link_.began_ns < ns(bounds::kLinkWatch)) return;
    const std::uint64_t moved = sum(tenants, [](const auto& each) { return each.moved_bytes; });
    const std::uint64_t length = now_ns - link_.began_ns, before = link_.moved_bytes;
    link_.began_ns = now_ns;
    link_.moved_bytes = moved;
    constexpr unsigned __int128 kSecond = 1'000'000'000;
    const auto carried = static_cast<unsigned __int128>(length) * link_speed(tenants) / kSecond;
    const bool saturated = before <= moved && carried > 0 && length < 4 * ns(bounds::kLinkWatch) &&
                           (moved - before) >= carried * kSaturatedPercent / 100;
    link_.saturated = saturated ? link_.saturated + 1 : 0;
    if (link_.saturated < kSaturatedWindows || !begin_turns()) return;
    log::debug("GPU {}: its link is saturated; processes take turns", device_);
}

bool GpuShare::begin_turns() noexcept {
    const std::uint64_t now_ns = clock_.now_ns();
    if (page_->turns_until_ns(now_ns) > now_ns) return false;
    page_->take_turns_until(now_ns + ns(sharing::kTurns));
    announce();
    return true;
}

std::size_t GpuShare::holder_at(std::span<const sharing::Seen> seen, std::span<const sharing::Tenant> tenants,
                                std::uint64_t capacity_bytes, std::uint64_t now_ns) {
    const auto index_of = [&](std::size_t slot) {
        const auto at = std::ranges::find(seen, slot, &sharing::Seen::slot);
        return at == seen.end() ? sharing::kNoTenant : static_cast<std::size_t>(at - seen.begin());
    };
    const std::uint64_t word = page_->turn();
    sharing::Turn turn = sharing::turn_of(word, now_ns);
    turn.holder = index_of(turn.holder);
    const bool is_own = turn.holder < seen.size() && page_->is_own(seen[turn.holder]);
    if (is_own && turn_use_.is_over(now_ns)) turn.length_ns = 0;
    const std::uint64_t link = link_speed(tenants), until_ns = page_->turns_until_ns(now_ns),
                        began_ns = until_ns - std::min(until_ns, ns(sharing::kTurns));
    sharing::Turn next = sharing::first_turn(turn, tenants, capacity_bytes, link, began_ns, now_ns);
    if (next == turn) next = sharing::turn_at(turn, tenants, capacity_bytes, link, now_ns);
    if (next == turn || next.holder == sharing::kNoTenant) return next.holder;
    const std::size_t holder = std::exchange(next.holder, seen[next.holder].slot);
    if (!page_->pass_turn(word, sharing::word_of(next)))
        return index_of(sharing::turn_of(page_->turn(), now_ns).holder);
    log::debug("GPU {}: process {} has the turn for {} ms", device_, seen[holder].process.number,
               next.length_ns / 1'000'000);
    announce();
    return holder;
}

std::uint64_t GpuShare::grant_of(const Levels& own) {
    const std::uint64_t now_ns = clock_.now_ns();
    seen_changes_ = page_->changes().load();
    next_look_ns_ = now_ns + ns(bounds::kShareLook);
    look_ns_ = now_ns;
    const bool was_idle = now_ns - std::min<std::uint64_t>(now_ns, last_use_ns_) >= ns(sharing::kIdle);
    if (own.in_use) last_use_ns_ = now_ns;
    // Of one that was alone is not known when it used the GPU last.
    if (own.in_use && own.allocated_bytes > 0 && (came_ns_ == 0 || (was_idle && is_shared())))
        came_ns_ = now_ns;
    turn_use_.note(own.in_use, turns_ == Turns::Own, now_ns);
    if (waiting_ == 0) {
        waiting_since_ns_ = 0;
    } else if (waiting_since_ns_ == 0) {
        waiting_since_ns_ = now_ns;
    }
    page_->write({.allocated_bytes = own.allocated_bytes,
                  .resident_bytes = own.held_bytes,
                  .granted_bytes = own.granted_bytes,
                  .pinned_bytes = own.pinned_bytes,
                  .least_bytes = std::max(least_bytes_.load(), own.least_bytes),
                  .weight = weight_,
                  .priority = priority_,
                  .last_use_ns = last_use_ns_,
                  .waiting_since_ns = waiting_since_ns_,
                  .waited_ns = waited_ns_,
                  .moved_bytes = own.moved_bytes,
                  .link_bytes_per_s = own.link_bytes_per_s,
                  .came_ns = came_ns_});
    const std::vector<sharing::Seen> seen = page_->tenants();
    std::vector<sharing::Tenant> tenants;
    std::size_t self = sharing::kNoTenant;
    for (const sharing::Seen& each : seen) {
        if (page_->is_own(each)) self = tenants.size();
        tenants.push_back(each.tenant);
    }
    sharing::end_stale_waits(tenants, now_ns);
    const bool shared = self != sharing::kNoTenant && tenants.size() > 1;
    if (shared_.exchange(shared) != shared) {
        log::info("GPU {} is {}", device_,
                  shared ? fmt::format("shared by {} processes under the shim", tenants.size())
                         : "no other process's under the shim any more");
    }
    turn_watched_ = false;
    if (!shared) {
        if (own.granted_bytes != 0) page_->announce();  // and says so at the next look
        turns_ = Turns::None;
        most_bytes_ = 0;
        return 0;
    }
    const std::uint64_t capacity = std::min(
        own.most_bytes, own.free_bytes + sum(tenants, [](const auto& each) { return each.resident_bytes; }));
    const std::uint64_t kept_by_others = sum(tenants, [&](const auto& each) {
        return &each == &tenants[self] ? 0 : std::min(each.least_bytes, each.allocated_bytes);
    });
    most_bytes_ = capacity - std::min(capacity, kept_by_others);
    const bool fits = sum(tenants, [](const auto& each) { return each.allocated_bytes; }) <= capacity;
    if (!fits) watch_link(tenants, now_ns);
    std::vector<std::uint64_t> grants;
    if (fits || page_->turns_until_ns(now_ns) <= now_ns) {
        turns_ = Turns::None;
        grants = sharing::grants(tenants, capacity, now_ns);
    } else {
        const std::size_t holder = holder_at(seen, tenants, capacity, now_ns);
        const bool higher = holder < tenants.size() && tenants[holder].priority > priority_;
        turns_ = holder == self ? Turns::Own : higher ? Turns::Higher : Turns::Others;
        // What becomes idle of a process whose work waits is its holder's, soon.
        if (higher) next_look_ns_ = now_ns + ns(bounds::kTurnLook);
        grants = sharing::grants_in_turn(tenants, holder, capacity, now_ns);
        // Beyond that those that wait see it themselves.
        turn_watched_ = holder == self && now_ns - last_use_ns_ < ns(sharing::kUnusedTurn);
    }
    const std::uint64_t grant = grants[self];
    // One that comes back has others give up what they took meanwhile.
    if ((was_idle && own.in_use) || differs(own.allocated_bytes, announced_bytes_, tolerance(capacity))) {
        announced_bytes_ = own.allocated_bytes;
        announce();
    }
    // Work that waits may lack less than that.
    if (own.granted_bytes != 0 && waiting_ == 0 && !differs(grant, own.granted_bytes, tolerance(capacity)))
        return own.granted_bytes;
    log::debug("GPU {}: this process may fill {} of {}", device_, util::format_bytes(grant),
               util::format_bytes(capacity));
    return std::max<std::uint64_t>(grant, 1);  // 0 means alone
}

}  // namespace lms::executor
