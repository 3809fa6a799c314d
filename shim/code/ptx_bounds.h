// Where a kernel's accesses of global memory lie, by the numbers that a launch gives it: by abstract
// interpretation of its PTX with ranges of integers. Pure.
//
// Nothing that a kernel may do is left out. What it loads from memory may be any number; a comparison bounds
// what it compares where it holds; a loop's counters are bounded by how often it goes round. (Cousot and
// Cousot, "Abstract interpretation: a unified lattice model for static analysis of programs", POPL 1977.)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shim/code/kernel_access.h"
#include "shim/code/ptx_steps.h"

namespace lms::shim {

struct LaunchShape {
    std::array<std::uint32_t, 3> blocks{};   // of the grid
    std::array<std::uint32_t, 3> threads{};  // of a block

    friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

// Addresses [begin, end) in bytes.
struct AccessRange {
    std::uint64_t begin, end;
    bool written;

    friend bool operator==(const AccessRange&, const AccessRange&) = default;
};

struct AccessBounds {
    std::vector<AccessRange> ranges;  // by address, those that are written apart from the others
    // Of parameters that lead to accesses which are not in these.
    ParameterWords read, written;

    void add(const AccessBounds& more);
};

class PtxBounds {
  public:
    // Null where the kernel shows nothing.
    static std::unique_ptr<const PtxBounds> of(const PtxModuleText& module, const PtxBodies& kernel,
                                               std::span<const SeenAccess> accesses);

    // What of the parameter block it asks for, 1 to 8 bytes each.
    std::span<const Parameter> inputs() const { return steps_.inputs; }
    // `inputs`: their values, in that order, their bytes in the lowest ones. Thread-safe.
    AccessBounds bounds(const LaunchShape& shape, std::span<const std::uint64_t> inputs) const;

  private:
    explicit PtxBounds(PtxSteps steps);

    PtxSteps steps_;
    std::vector<std::vector<RegisterId>> readers_;  // by register: those that are computed from it
};

}  // namespace lms::shim
