#include "shim/access/known_launches.h"

#include <algorithm>
#include <utility>

namespace lms::access {

std::size_t KnownLaunches::Launch::hash() const {
    std::uint64_t hash = shape.blocks[0];
    for (const std::uint64_t word : arguments()) hash = (hash ^ word) * 0x9E3779B97F4A7C15 + (hash >> 29);
    return hash >> 32;
}

bool KnownLaunches::Known::is(const Launch& launch) const {
    return changes == launch.changes && shape == launch.shape && tables == launch.tables &&
           std::ranges::equal(arguments, launch.arguments());
}

bool KnownLaunches::find(const Launch& launch, session::WorkingSet& reach) {
    const std::size_t slot = launch.hash() % kSlots;
    const util::Lock lock(mutex_);
    const Known* const known = slots_.empty() ? nullptr : slots_[slot].known.get();
    if (!known || !known->is(launch)) return false;
    const auto add = [](auto& all, const auto& more) {
        if (!more.empty()) all.assign(more.begin(), more.end());
    };
    add(reach.addresses, known->addresses);
    add(reach.only_read, known->only_read);
    add(reach.ranges, known->ranges);
    reach.opaque |= known->opaque;
    reach.unseen |= known->unseen;
    return true;
}

void KnownLaunches::keep(const Launch& launch, const session::WorkingSet& reach) {
    const std::size_t hash = launch.hash();
    const util::Lock lock(mutex_);
    slots_.resize(kSlots);
    Slot& slot = slots_[hash % kSlots];
    if (std::exchange(slot.missed, hash) != hash) return;
    const auto words = launch.arguments();
    slot.known = std::make_unique<const Known>(Known{launch.changes,
                                                     launch.shape,
                                                     launch.tables,
                                                     {words.begin(), words.end()},
                                                     {reach.addresses.begin(), reach.addresses.end()},
                                                     {reach.only_read.begin(), reach.only_read.end()},
                                                     reach.ranges,
                                                     reach.opaque,
                                                     reach.unseen});
}

}  // namespace lms::access
