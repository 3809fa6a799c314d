// Which ranges of memory a launch reaches, by what its kernel's code shows and the launch gives it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "shim/access/placed_access.h"
#include "shim/code/ptx_bounds.h"
#include "shim/util/mutex.h"

namespace lms::shim {

// Of one kernel. What launches gave before is kept with its answers, for programs repeat themselves.
// Thread-safe.
class LaunchBounds {
  public:
    // `all`: of each code that may run. Null: the code shows nothing for one of them.
    static std::unique_ptr<LaunchBounds> of(std::vector<std::shared_ptr<const PtxBounds>> all,
                                            std::span<const Parameter> layout);

    // By `read(place, to, bytes)`, which reads the launch's parameters.
    template <typename Read>
    std::shared_ptr<const AccessBounds> bounds(const LaunchShape& shape, Read&& read) {
        std::vector<std::uint64_t> key;
        key.reserve(inputs_.size() + kShapeWords);
        for (const Input& input : inputs_) {
            std::uint64_t value = 0;
            read(input.at, &value, input.bytes);
            key.push_back(value);
        }
        for (std::size_t axis = 0; axis < kShapeWords; ++axis)
            key.push_back(std::uint64_t{shape.blocks[axis]} << 32 | shape.threads[axis]);
        return known(shape, std::move(key));
    }

  private:
    static constexpr std::size_t kShapeWords = 3;
    // Answers that are kept of a kernel.
    static constexpr std::size_t kMostAnswers = 1024;

    struct Input {
        Place at;
        std::size_t bytes;
    };
    struct Hash {
        std::size_t operator()(const std::vector<std::uint64_t>& key) const;
    };

    std::shared_ptr<const AccessBounds> known(const LaunchShape& shape, std::vector<std::uint64_t> key);

    std::vector<std::shared_ptr<const PtxBounds>> all_;
    std::vector<Input> inputs_;  // of each of them, one after the other
    util::Mutex mutex_{util::LockOrder::Leaf};
    std::unordered_map<std::vector<std::uint64_t>, std::shared_ptr<const AccessBounds>, Hash> answers_
        LMS_GUARDED_BY(mutex_);
};

}  // namespace lms::shim
