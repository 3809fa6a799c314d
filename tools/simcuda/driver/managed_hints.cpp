#include "tools/simcuda/driver/managed_hints.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "tools/simcuda/driver/physical.h"

namespace simcuda::driver {
namespace {

struct Stretch {
    std::uint64_t end;
    ManagedHint hint;
};

// What is in none has no hints.
struct State {
    std::mutex mutex;  // guards what follows
    std::map<std::uint64_t, Stretch> stretches;
};

State& state() {
    static auto& state = *new State;
    return state;
}

// A stretch begins at the address, if it lies in one. The mutex is held.
void split(std::uint64_t address) {
    auto& stretches = state().stretches;
    auto it = stretches.upper_bound(address);
    if (it == stretches.begin()) return;
    --it;
    if (it->first == address || it->second.end <= address) return;
    Stretch rest = it->second;
    it->second.end = address;
    stretches.emplace(address, std::move(rest));
}

struct Pages {
    Pages(std::uint64_t address, std::uint64_t bytes)
        : begin(address / kPage * kPage), end(round_up(address + bytes, kPage)) {}
    std::uint64_t begin, end;
};

}  // namespace

void change_hints(std::uint64_t address, std::uint64_t bytes,
                  const std::function<void(ManagedHint&)>& change) {
    const Pages pages(address, bytes);
    std::lock_guard lock(state().mutex);
    split(pages.begin);
    split(pages.end);
    auto& stretches = state().stretches;
    for (std::uint64_t at = pages.begin; at < pages.end;) {
        auto it = stretches.lower_bound(at);
        if (it == stretches.end() || it->first != at) {
            const std::uint64_t next = it == stretches.end() ? pages.end : std::min(it->first, pages.end);
            it = stretches.emplace(at, Stretch{next, {}}).first;
        }
        change(it->second.hint);
        at = it->second.end;
    }
}

void forget_hints(std::uint64_t address, std::uint64_t bytes) {
    const Pages pages(address, bytes);
    std::lock_guard lock(state().mutex);
    split(pages.begin);
    split(pages.end);
    auto& stretches = state().stretches;
    stretches.erase(stretches.lower_bound(pages.begin), stretches.lower_bound(pages.end));
}

std::vector<ManagedHint> hints_of(std::uint64_t address, std::uint64_t bytes) {
    const Pages pages(address, bytes);
    std::vector<ManagedHint> hints;
    std::lock_guard lock(state().mutex);
    const auto& stretches = state().stretches;
    auto it = stretches.upper_bound(pages.begin);
    if (it != stretches.begin() && std::prev(it)->second.end > pages.begin) --it;
    std::uint64_t at = pages.begin;
    for (; it != stretches.end() && it->first < pages.end; ++it) {
        if (it->first > at) hints.emplace_back();
        hints.push_back(it->second.hint);
        at = it->second.end;
    }
    if (at < pages.end) hints.emplace_back();
    return hints;
}

}  // namespace simcuda::driver
