// Where a kernel's accesses of global memory lie, by the numbers that a launch gives it: by abstract
// interpretation of its PTX with ranges of integers. Pure.
//
// Nothing that a kernel may do is left out. What it loads from memory may be any number; a comparison bounds
// what it compares where it holds; a loop's counters are bounded by how often it goes round. A grid whose
// blocks do different work, by their number, is looked at in parts. (Cousot and
// Cousot, "Abstract interpretation: a unified lattice model for static analysis of programs", POPL 1977.)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shim/code/kernel_access.h"
#include "shim/code/ptx_known.h"
#include "shim/code/ptx_pointers.h"
#include "shim/code/ptx_steps.h"

namespace lms::code {

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

// The same by where an input leads: [begin, end) from there on, in bytes, or addresses where there is none.
struct RelativeRange {
    std::int64_t begin, end;
    bool written;
    std::optional<std::uint32_t> input;
};

struct AccessBounds {
    // In the order of the parameters that lead there, in each run of a step the same. They may overlap.
    std::vector<AccessRange> ranges;
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
    // Whether the answer does not depend on this one: it is where memory begins.
    bool moves_along(std::size_t input) const { return pointers_.moves_along[input]; }

    struct Answer {
        std::vector<RelativeRange> ranges;
        ParameterWords read, written;  // as of AccessBounds
    };
    // `inputs`: their values, in that order, their bytes in the lowest ones. Thread-safe, as all of it.
    Answer follow(const LaunchShape& shape, std::span<const std::uint64_t> inputs) const;
    // What follows from such an answer where these inputs lead.
    static AccessBounds placed(const Answer& answer, std::span<const std::uint64_t> inputs);

  private:
    explicit PtxBounds(PtxSteps steps);

    PtxSteps steps_;
    PtxPointers pointers_;
    PtxReaders readers_;
    std::vector<std::int64_t> compared_with_block_;
};

}  // namespace lms::code
