#include "tools/simcuda/driver/pieces.h"

#include <sys/mman.h>

#include <iterator>

#include "tools/simcuda/driver/address_space.h"

namespace simcuda::driver {
namespace {

// A page stays free behind each piece, so that running over its end faults.
constexpr std::uint64_t kSpan = Pieces::kBytes + kPage;

std::byte* memory_at(DeviceAddress address) {
    return static_cast<std::byte*>(to_host(address));
}

}  // namespace

Pieces::All::iterator Pieces::add() {
    auto physical = Physical::create(memory_, kBytes);
    if (physical == nullptr) return pieces_.end();
    const DeviceAddress address = address_space().reserve(kSpan, kBytes);
    if (address == 0) return pieces_.end();
    if (!physical->map(other_side(address), PROT_READ | PROT_WRITE)) {
        address_space().release(address, kSpan);
        return pieces_.end();
    }
    return pieces_.emplace(address, Piece{Gaps(address, kBytes), std::move(physical)}).first;
}

Pieces::Cut Pieces::cut(std::uint64_t bytes) {
    bytes = round_up(bytes, kAlignment);
    std::lock_guard lock(mutex_);
    DeviceAddress address = 0;
    auto piece = pieces_.lower_bound(next_);
    for (std::size_t tried = 0; address == 0 && tried < pieces_.size(); ++tried) {
        if (tried != 0) ++piece;
        if (piece == pieces_.end()) piece = pieces_.begin();
        address = piece->second.gaps.take(bytes, kAlignment);
    }
    if (address == 0) {
        piece = add();
        if (piece == pieces_.end()) return {};
        address = piece->second.gaps.take(bytes, kAlignment);
    }
    next_ = piece->first;
    poison(memory_at(address), bytes, ++poison_);
    return {address, Physical::part_of(piece->second.physical, address - piece->first, bytes)};
}

void Pieces::give_back(DeviceAddress address, std::uint64_t bytes) {
    bytes = round_up(bytes, kAlignment);
    std::lock_guard lock(mutex_);
    const auto piece = std::prev(pieces_.upper_bound(address));
    poison(memory_at(address), bytes, ++poison_);
    piece->second.gaps.give_back(address, bytes);
    if (!piece->second.gaps.all_free()) return;
    make_inaccessible(other_side(piece->first), kBytes);
    address_space().release(piece->first, kSpan);
    pieces_.erase(piece);
}

}  // namespace simcuda::driver
