// Batches: arrays of operations in one call, with attributes for runs of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace lms::entry {

// The attributes of a batch: attribute i is for the operations from starts[i] to the next one's start.
// Borrows the caller's arrays.
template <typename Attribute>
struct Runs {
    Attribute* attributes;
    std::size_t* starts;
    std::size_t count;

    // Whether they are as the driver wants them: starts[0] is 0, they ascend, and there are not more than
    // operations.
    bool valid_for(std::size_t operations) const {
        return attributes && starts && count > 0 && count <= operations && starts[0] == 0 &&
               std::adjacent_find(starts, starts + count, std::greater_equal<>()) == starts + count;
    }
    std::size_t of(std::size_t operation) const {
        return static_cast<std::size_t>(std::upper_bound(starts, starts + count, operation) - starts) - 1;
    }
};

// The attributes of some of a batch's operations, in arrays of their own.
template <typename Attribute>
class SomeRuns {
  public:
    // The next operation chosen is `operation` of the whole batch.
    void add(const Runs<Attribute>& whole, std::size_t operation) {
        const std::size_t run = whole.of(operation);
        if (attributes_.empty() || run != last_) {
            attributes_.push_back(whole.attributes[run]);
            starts_.push_back(operations_);
            last_ = run;
        }
        ++operations_;
    }
    Runs<Attribute> get() { return {attributes_.data(), starts_.data(), attributes_.size()}; }

  private:
    std::vector<Attribute> attributes_;
    std::vector<std::size_t> starts_;
    std::size_t operations_ = 0;
    std::size_t last_ = 0;
};

}  // namespace lms::entry
