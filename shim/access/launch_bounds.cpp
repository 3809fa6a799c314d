#include "shim/access/launch_bounds.h"

#include <algorithm>
#include <utility>

namespace lms::shim {

std::unique_ptr<LaunchBounds> LaunchBounds::of(std::vector<std::shared_ptr<const PtxBounds>> all,
                                               std::span<const Parameter> layout) {
    if (all.empty() || std::ranges::find(all, nullptr) != all.end()) return nullptr;
    auto result = std::make_unique<LaunchBounds>();
    for (const auto& each : all) {
        for (const Parameter& input : each->inputs()) {
            const auto at = place_of(layout, input.offset, input.bytes);
            if (!at) return nullptr;
            result->inputs_.push_back({*at, input.bytes});
        }
    }
    result->all_ = std::move(all);
    return result;
}

std::size_t LaunchBounds::Hash::operator()(const std::vector<std::uint64_t>& key) const {
    std::uint64_t hash = key.size();
    for (const std::uint64_t each : key) hash = (hash ^ each ^ hash >> 29) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

std::shared_ptr<const AccessBounds> LaunchBounds::known(const LaunchShape& shape,
                                                        std::vector<std::uint64_t> key) {
    {
        const util::Lock lock(mutex_);
        if (const auto it = answers_.find(key); it != answers_.end()) return it->second;
    }
    auto bounds = std::make_shared<AccessBounds>();
    std::span<const std::uint64_t> inputs(key);
    for (const auto& each : all_) {
        bounds->add(each->bounds(shape, inputs.first(each->inputs().size())));
        inputs = inputs.subspan(each->inputs().size());
    }
    const util::Lock lock(mutex_);
    if (answers_.size() >= kMostAnswers) answers_.clear();
    return answers_.try_emplace(std::move(key), std::move(bounds)).first->second;
}

}  // namespace lms::shim
