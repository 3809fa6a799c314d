#include "shim/access/launch_bounds.h"

#include <algorithm>
#include <utility>

namespace lms::access {

std::unique_ptr<LaunchBounds> LaunchBounds::of(std::vector<std::shared_ptr<const code::PtxBounds>> all,
                                               std::span<const code::Parameter> layout) {
    if (all.empty() || std::ranges::find(all, nullptr) != all.end()) return nullptr;
    auto result = std::make_unique<LaunchBounds>();
    for (const auto& each : all) {
        for (std::size_t i = 0; i < each->inputs().size(); ++i) {
            const code::Parameter& input = each->inputs()[i];
            const auto at = place_of(layout, input.offset, input.bytes);
            if (!at) return nullptr;
            result->inputs_.push_back({*at, input.bytes, each->moves_along(i)});
        }
    }
    result->all_ = std::move(all);
    return result;
}

std::size_t LaunchBounds::Hash::operator()(const Key& key) const {
    std::uint64_t hash = key.size();
    for (const std::uint64_t each : key) hash = (hash ^ each ^ hash >> 29) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

code::AccessBounds LaunchBounds::known(const code::LaunchShape& shape,
                                       std::span<const std::uint64_t> values) {
    const auto all = answers(shape, values);
    code::AccessBounds bounds;
    for (std::size_t i = 0; i < all_.size(); ++i) {
        const std::size_t count = all_[i]->inputs().size();
        bounds.add(code::PtxBounds::placed((*all)[i], values.first(count)));
        values = values.subspan(count);
    }
    return bounds;
}

std::shared_ptr<const LaunchBounds::Answers> LaunchBounds::answers(const code::LaunchShape& shape,
                                                                   std::span<const std::uint64_t> values) {
    Key key;
    key.reserve(values.size() + shape.blocks.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!inputs_[i].moves_along) key.push_back(values[i]);
    }
    for (std::size_t axis = 0; axis < shape.blocks.size(); ++axis)
        key.push_back(std::uint64_t{shape.blocks[axis]} << 32 | shape.threads[axis]);
    {
        const util::Lock lock(mutex_);
        if (const auto it = answers_.find(key); it != answers_.end()) return it->second;
    }
    auto made = std::make_shared<Answers>();
    for (const auto& each : all_) {
        made->push_back(each->follow(shape, values.first(each->inputs().size())));
        values = values.subspan(each->inputs().size());
    }
    const util::Lock lock(mutex_);
    if (answers_.size() >= kMostAnswers) answers_.clear();
    return answers_.try_emplace(std::move(key), std::move(made)).first->second;
}

}  // namespace lms::access
