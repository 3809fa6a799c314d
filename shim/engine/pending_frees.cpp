#include "shim/engine/pending_frees.h"

namespace lms::engine {

void PendingFrees::add(const PendingFree& free) {
    const Number number = next_++;
    bytes_ += free.bytes;
    all_.emplace(number, free);
    by_size_[{free.stream, free.bytes}].insert(number);
    by_timeline_[free.free.timeline].insert(number);
    by_id_[free.id] = number;
}

template <typename Key>
void PendingFrees::drop(std::map<Key, Numbers>& index, const Key& key, Number number) {
    const auto it = index.find(key);
    if (it == index.end()) return;
    it->second.erase(number);
    if (it->second.empty()) index.erase(it);
}

void PendingFrees::erase(Number number) {
    const auto it = all_.find(number);
    const PendingFree& free = it->second;
    bytes_ -= free.bytes;
    drop(by_size_, {free.stream, free.bytes}, number);
    drop(by_timeline_, free.free.timeline, number);
    by_id_.erase(free.id);
    all_.erase(it);
}

std::optional<AllocationId> PendingFrees::take(StreamKey stream, std::uint64_t bytes, bool exactly) {
    const auto it = exactly ? by_size_.find({stream, bytes}) : by_size_.lower_bound({stream, bytes});
    if (it == by_size_.end() || it->first.first != stream) return std::nullopt;
    const Number number = *it->second.rbegin();
    const AllocationId id = all_.at(number).id;
    erase(number);
    return id;
}

std::optional<AllocationId> PendingFrees::take_finished(const Timelines& timelines,
                                                        const std::function<bool(AllocationId)>& ready) {
    for (const auto& [timeline, numbers] : by_timeline_) {
        for (const Number number : numbers) {
            const PendingFree& free = all_.at(number);
            if (!timelines.finished(free.free)) break;
            if (!ready(free.id)) continue;
            const AllocationId id = free.id;
            erase(number);
            return id;
        }
    }
    return std::nullopt;
}

bool PendingFrees::remove(AllocationId id) {
    const auto it = by_id_.find(id);
    if (it == by_id_.end()) return false;
    erase(it->second);
    return true;
}

void PendingFrees::stream_gone(StreamKey stream) {
    for (auto it = by_size_.lower_bound({stream, 0}); it != by_size_.end() && it->first.first == stream;) {
        for (const Number number : it->second) all_.at(number).stream = 0;
        it = by_size_.erase(it);
    }
}

}  // namespace lms::engine
