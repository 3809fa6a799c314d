// Which registers of a function are needed later on.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/simcuda/ptx/ast.h"

namespace simcuda::ptx {

class Liveness {
  public:
    explicit Liveness(const Function& function);

    // The registers that a thread needs which stops anywhere in a statement, and goes on later.
    std::vector<int> around(std::size_t statement) const;

  private:
    using Set = std::vector<bool>;  // by register
    // From what is live behind a statement to what is live before it.
    void pass(std::size_t statement, Set& live) const;

    const Function& function_;
    std::vector<Set> at_label_;
};

}  // namespace simcuda::ptx
