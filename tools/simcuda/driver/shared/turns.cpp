#include "tools/simcuda/driver/shared/turns.h"

#include <algorithm>

#include "tools/simcuda/driver/random.h"

namespace simcuda::driver::shared {
namespace {

constexpr std::uint64_t kPollNs = 50'000;

bool takes_turns() {
    return page() != nullptr && !simulated_time();
}

std::size_t index_of(const Page& page, const Slot& slot) {
    return static_cast<std::size_t>(&slot - page.slots);
}

bool has_kernels(const Slot& slot, std::size_t device) {
    return slot.process != 0 && slot.kernels[device] != 0;
}

}  // namespace

std::uint64_t take_link(const Link& link, std::uint64_t from, std::uint64_t ns) {
    Number& until = page()->devices[link.device].link_until[link.up ? 0 : 1];
    std::uint64_t seen = until;
    for (;;) {
        const std::uint64_t end = std::max(seen, from) + ns;
        if (until.compare_exchange_weak(seen, end)) return end;
    }
}

bool take_turn(Page& page, std::size_t device, const Slot& slot, std::uint64_t now) {
    SharedDevice& shared = page.devices[device];
    const std::size_t holder = shared.holder % kMostProcesses, me = index_of(page, slot);
    const bool over = now - shared.turn_began >= kSliceNs;
    if (!over && has_kernels(page.slots[holder], device)) return holder == me;
    if (over) free_slots_of_ended(page);
    std::size_t next = holder;
    for (std::size_t i = 1; i <= kMostProcesses; ++i) {
        next = (holder + i) % kMostProcesses;
        if (has_kernels(page.slots[next], device)) break;
    }
    shared.holder = next;
    shared.turn_began = now;
    return next == me;
}

Turn::Turn(std::size_t device) : device_(device) {
    if (takes_turns()) ++own_slot()->kernels[device_];
    enter();
}

Turn::~Turn() {
    if (takes_turns()) --own_slot()->kernels[device_];
}

void Turn::enter() {
    const auto has_turn = [&] {
        const PageLock lock;
        if (!take_turn(*page(), device_, *own_slot(), now_ns())) return false;
        until_ns_ = page()->devices[device_].turn_began + kSliceNs;
        return true;
    };
    while (takes_turns() && !has_turn()) sleep_ns(kPollNs);
    entered_ns_ = now_ns();
}

void Turn::leave() {
    had_ns_ += std::max(entered_ns_, std::min(now_ns(), until_ns_)) - entered_ns_;
}

void Turn::pause() {
    leave();
    enter();
}

void Turn::last(std::uint64_t least_ns) {
    pause();
    while (had_ns_ < least_ns) {
        sleep_ns(std::min(least_ns - had_ns_, until_ns_ - std::min(until_ns_, now_ns())));
        pause();
    }
}

}  // namespace simcuda::driver::shared
