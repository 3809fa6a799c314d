// Which instructions of a PTX function may follow which: its blocks and loops. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shim/code/ptx_body.h"

namespace lms::code {

// Where a block may go on. `guard`: only where that is so; none: in any case.
struct FlowEdge {
    std::uint32_t to;  // block
    std::optional<PtxGuard> guard;
};

// Instructions [begin, end) that are done one after the other.
struct FlowBlock {
    std::size_t begin, end;
    std::vector<FlowEdge> next;         // none: the thread ends
    std::vector<std::uint32_t> before;  // blocks
};

// A block that dominates others that lead back to it, and all that lie between.
struct FlowLoop {
    std::uint32_t head;
    std::vector<bool> has;  // by block
};

class PtxFlow {
  public:
    // Nothing where it does not show: jumps by tables, labels that are not there, loops with two ways in.
    static std::optional<PtxFlow> of(const PtxBody& body);

    // The first is where it begins; those that nothing leads to are left out of `order`.
    const std::vector<FlowBlock>& blocks() const { return blocks_; }
    // Each after those that lead to it, but for those that lead back.
    std::span<const std::uint32_t> order() const { return order_; }
    std::size_t place(std::uint32_t block) const { return places_[block]; }  // in `order`
    bool dominates(std::uint32_t a, std::uint32_t b) const;
    // Inner loops come after those around them.
    const std::vector<FlowLoop>& loops() const { return loops_; }

  private:
    bool split(const PtxBody& body);
    void put_in_order();
    void find_dominators();
    bool find_loops();

    std::vector<FlowBlock> blocks_;
    std::vector<std::uint32_t> order_;
    std::vector<std::size_t> places_;
    std::vector<std::uint32_t> dominators_;  // the nearest of each block
    std::vector<FlowLoop> loops_;
};

}  // namespace lms::code
