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

namespace lms::access {

// Of one kernel. The answers to numbers that launches gave before are kept, for programs repeat themselves;
// where their memory begins does not count. Thread-safe.
class LaunchBounds {
  public:
    // `all`: of each code that may run. Null: the code shows nothing for one of them.
    static std::unique_ptr<LaunchBounds> of(std::vector<std::shared_ptr<const code::PtxBounds>> all,
                                            std::span<const code::Parameter> layout);

    // By `read(place, to, bytes)`, which reads the launch's parameters.
    template <typename Read>
    code::AccessBounds bounds(const code::LaunchShape& shape, Read&& read) {
        std::vector<std::uint64_t> values;
        values.reserve(inputs_.size());
        for (const Input& input : inputs_) {
            std::uint64_t value = 0;
            read(input.at, &value, input.bytes);
            values.push_back(value);
        }
        return known(shape, values);
    }

  private:
    // Answers that are kept of a kernel.
    static constexpr std::size_t kMostAnswers = 1024;

    struct Input {
        Place at;
        std::size_t bytes;
        bool moves_along;
    };
    using Key = std::vector<std::uint64_t>;
    struct Hash {
        std::size_t operator()(const Key& key) const;
    };
    using Answers = std::vector<code::PtxBounds::Answer>;  // of each of `all_`

    code::AccessBounds known(const code::LaunchShape& shape, std::span<const std::uint64_t> values);
    std::shared_ptr<const Answers> answers(const code::LaunchShape& shape,
                                           std::span<const std::uint64_t> values);

    std::vector<std::shared_ptr<const code::PtxBounds>> all_;
    std::vector<Input> inputs_;  // of each of them, one after the other
    util::Mutex mutex_{util::LockOrder::Leaf};
    std::unordered_map<Key, std::shared_ptr<const Answers>, Hash> answers_ LMS_GUARDED_BY(mutex_);
};

}  // namespace lms::access
