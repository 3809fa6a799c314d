#include "shim/access/pointer_words.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace lms::access {

using engine::Address;

namespace {

constexpr std::uint64_t kWordBytes = sizeof(Address);

constexpr Address round_down(Address address, std::uint64_t unit) {
    return address / unit * unit;
}
constexpr Address round_up(Address address, std::uint64_t unit) {
    return round_down(address + unit - 1, unit);
}

}  // namespace

void PointerWords::overwrite(Address begin, std::uint64_t bytes, std::span<const PointerWord> words) {
    erase_whole_words(round_up(begin, kWordBytes), round_down(begin + bytes, kWordBytes));
    add(words);
}

void PointerWords::add(std::span<const PointerWord> words) {
    while (!words.empty()) {
        const Address base = round_down(words.front().at, kPageBytes);
        Page& page = pages_[base];
        std::array<Address, kPageWords> values;
        std::size_t n = 0;
        for (std::size_t slot = 0; slot < kPageWords; ++slot) {
            if (page.set[slot]) values[slot] = page.values[n++];
        }
        std::size_t taken = 0;
        for (; taken < words.size() && words[taken].at - base < kPageBytes; ++taken) {
            const std::size_t slot = (words[taken].at - base) / kWordBytes;
            page.set.set(slot);
            values[slot] = words[taken].value;
        }
        page.values.clear();
        for (std::size_t slot = 0; slot < kPageWords; ++slot) {
            if (page.set[slot]) page.values.push_back(values[slot]);
        }
        page.values.shrink_to_fit();
        changed(base, base + kPageBytes);
        words = words.subspan(taken);
    }
}

void PointerWords::copy(Address to, Address from, std::uint64_t bytes) {
    overwrite(to, bytes, copied(to, from, bytes));
}

std::vector<PointerWord> PointerWords::copied(Address to, Address from, std::uint64_t bytes) const {
    std::vector<PointerWord> words = words_in(from, bytes);
    for (PointerWord& word : words) word.at += to - from;
    std::erase_if(words, [](const PointerWord& word) { return word.at % kWordBytes != 0; });
    return words;
}

void PointerWords::erase_whole_words(Address begin, Address end) {
    if (begin >= end) return;
    auto it = pages_.lower_bound(round_down(begin, kPageBytes));
    while (it != pages_.end() && it->first < end) {
        Page& page = it->second;
        std::size_t n = 0;
        std::size_t kept = 0;
        for (std::size_t slot = 0; slot < kPageWords; ++slot) {
            if (!page.set[slot]) continue;
            const Address at = it->first + slot * kWordBytes;
            if (at >= begin && at < end) {
                page.set.reset(slot);
            } else {
                page.values[kept++] = page.values[n];
            }
            ++n;
        }
        page.values.resize(kept);
        it = kept == 0 ? pages_.erase(it) : std::next(it);
    }
    changed(begin, end);
}

bool PointerWords::any_in(Address begin, std::uint64_t bytes) const {
    const Address end = begin + bytes;
    for (auto it = pages_.lower_bound(round_down(begin, kPageBytes)); it != pages_.end() && it->first < end;
         ++it) {
        if (it->first >= begin && it->first + kPageBytes <= end) return true;
        for (std::size_t slot = 0; slot < kPageWords; ++slot) {
            const Address at = it->first + slot * kWordBytes;
            if (it->second.set[slot] && at >= begin && at + kWordBytes <= end) return true;
        }
    }
    return false;
}

std::vector<PointerWord> PointerWords::words_in(Address begin, std::uint64_t bytes) const {
    std::vector<PointerWord> words;
    const Address end = begin + bytes;
    for (auto it = pages_.lower_bound(round_down(begin, kPageBytes)); it != pages_.end() && it->first < end;
         ++it) {
        std::size_t n = 0;
        for (std::size_t slot = 0; slot < kPageWords; ++slot) {
            if (!it->second.set[slot]) continue;
            const Address at = it->first + slot * kWordBytes;
            const Address value = it->second.values[n++];
            if (at >= begin && at + kWordBytes <= end) words.push_back({at, value});
        }
    }
    return words;
}

void PointerWords::changed(Address begin, Address end) {
    // Extents do not overlap, so of those that begin before `begin` only the last can reach into the range.
    auto it = targets_.lower_bound(begin);
    if (it != targets_.begin() && std::prev(it)->second.end > begin) --it;
    while (it != targets_.end() && it->first < end) it = targets_.erase(it);
}

const std::vector<Address>& PointerWords::targets_of(Extent extent) {
    const auto known = targets_.find(extent.begin);
    if (known != targets_.end() && known->second.end == extent.end) return known->second.addresses;
    changed(extent.begin, extent.end);  // what buffers of the past left there
    std::vector<Address> addresses;
    for (const PointerWord& word : words_in(extent.begin, extent.end - extent.begin))
        addresses.push_back(word.value);
    // Most buffers, which come and go: nobody would say when what is known of one is to be forgotten.
    static const std::vector<Address>& none = *new std::vector<Address>;
    if (addresses.empty()) return none;
    std::sort(addresses.begin(), addresses.end());
    addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    return targets_.insert_or_assign(extent.begin, Targets{extent.end, std::move(addresses)})
        .first->second.addresses;
}

void PointerWords::close_over(std::pmr::vector<Address>& addresses, const ExtentOf& extent_of) {
    if (empty()) return;
    std::vector<Extent> reached;
    std::unordered_set<Address> begins;
    const auto reach = [&](Extent extent) {
        const bool first = begins.insert(extent.begin).second;
        if (first) reached.push_back(extent);
        return first;
    };
    for (const Address address : addresses) {
        if (const auto extent = extent_of(address)) reach(*extent);
    }
    for (std::size_t next = 0; next < reached.size(); ++next) {
        const std::vector<Address>& targets = targets_of(reached[next]);
        for (auto target = targets.begin(); target != targets.end();) {
            const auto extent = extent_of(*target);
            if (!extent) {
                ++target;
                continue;
            }
            if (reach(*extent)) addresses.push_back(*target);
            // An address just past the end names an extent too.
            target = std::lower_bound(target + 1, targets.end(), extent->end);
        }
    }
}

}  // namespace lms::access
