#include "shim/code/ptx_flow.h"

#include <algorithm>
#include <utility>

namespace lms::code {

namespace {

constexpr std::size_t kUnreached = ~std::size_t{0};

std::string_view root_of(const PtxInstruction& instruction) {
    return instruction.opcode.substr(0, instruction.opcode.find('.'));
}

bool ends_thread(std::string_view root) {
    return root == "ret" || root == "exit" || root == "trap";
}

PtxGuard inverse(const PtxGuard& guard) {
    return {guard.predicate, !guard.when};
}

}  // namespace

std::optional<PtxFlow> PtxFlow::of(const PtxBody& body) {
    PtxFlow flow;
    if (!body.function.is_flat || !flow.split(body)) return std::nullopt;
    flow.put_in_order();
    flow.find_dominators();
    if (!flow.find_loops()) return std::nullopt;
    return flow;
}

bool PtxFlow::split(const PtxBody& body) {
    const std::vector<PtxInstruction>& all = body.function.body;
    if (all.empty()) return false;
    std::vector<bool> begins(all.size() + 1);
    begins[0] = true;
    for (const auto& [name, at] : body.function.labels) begins[at] = true;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string_view root = root_of(all[i]);
        if (root == "brx") return false;
        if (root == "bra" || ends_thread(root)) begins[i + 1] = true;
    }
    std::vector<std::uint32_t> blocks(all.size() + 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (begins[i]) blocks_.push_back({i, i, {}, {}});
        blocks_.back().end = i + 1;
        blocks[i] = static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    // Behind the last instruction the thread ends.
    const auto lead = [&](FlowBlock& from, std::size_t to, std::optional<PtxGuard> guard) {
        if (to < all.size()) from.next.push_back({blocks[to], guard});
    };
    for (FlowBlock& block : blocks_) {
        const PtxInstruction& last = all[block.end - 1];
        const std::string_view root = root_of(last);
        const bool jumps = root == "bra";
        if (!jumps && !ends_thread(root)) {
            lead(block, block.end, std::nullopt);
            continue;
        }
        if (jumps) {
            if (last.operands.size() != 1 || last.operands[0].names.size() != 1) return false;
            const auto label = body.function.labels.find(last.operands[0].names[0]);
            if (label == body.function.labels.end()) return false;
            lead(block, label->second, last.guard);
        }
        if (last.guard) lead(block, block.end, inverse(*last.guard));
    }
    for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
        for (const FlowEdge& edge : blocks_[i].next) blocks_[edge.to].before.push_back(i);
    }
    return true;
}

void PtxFlow::put_in_order() {
    places_.assign(blocks_.size(), kUnreached);
    std::vector<bool> seen(blocks_.size());
    std::vector<std::pair<std::uint32_t, std::size_t>> path{{0, 0}};
    seen[0] = true;
    while (!path.empty()) {
        auto& [block, edge] = path.back();
        if (edge == blocks_[block].next.size()) {
            order_.push_back(block);
            path.pop_back();
            continue;
        }
        const std::uint32_t next = blocks_[block].next[edge++].to;
        if (seen[next]) continue;
        seen[next] = true;
        path.emplace_back(next, 0);
    }
    std::ranges::reverse(order_);
    for (std::size_t i = 0; i < order_.size(); ++i) places_[order_[i]] = i;
    // What nothing leads to leads nowhere.
    for (FlowBlock& block : blocks_)
        std::erase_if(block.before, [&](std::uint32_t each) { return places_[each] == kUnreached; });
}

// Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm".
void PtxFlow::find_dominators() {
    constexpr std::uint32_t kNone = ~std::uint32_t{0};
    dominators_.assign(blocks_.size(), kNone);
    dominators_[order_[0]] = order_[0];
    const auto common = [&](std::uint32_t a, std::uint32_t b) {
        while (a != b) {
            while (places_[a] > places_[b]) a = dominators_[a];
            while (places_[b] > places_[a]) b = dominators_[b];
        }
        return a;
    };
    for (bool changed = true; std::exchange(changed, false);) {
        for (const std::uint32_t block : std::span(order_).subspan(1)) {
            std::uint32_t nearest = kNone;
            for (const std::uint32_t before : blocks_[block].before) {
                if (dominators_[before] == kNone) continue;
                nearest = nearest == kNone ? before : common(before, nearest);
            }
            changed |= std::exchange(dominators_[block], nearest) != nearest;
        }
    }
}

bool PtxFlow::dominates(std::uint32_t a, std::uint32_t b) const {
    while (places_[b] > places_[a]) b = dominators_[b];
    return a == b;
}

// False where a loop may be entered elsewhere than at its head.
bool PtxFlow::find_loops() {
    for (const std::uint32_t head : order_) {
        std::vector<std::uint32_t> inside;
        for (const std::uint32_t before : blocks_[head].before) {
            if (places_[before] < places_[head]) continue;
            if (!dominates(head, before)) return false;
            inside.push_back(before);
        }
        if (inside.empty()) continue;
        FlowLoop loop{head, std::vector<bool>(blocks_.size())};
        loop.has[head] = true;
        while (!inside.empty()) {
            const std::uint32_t block = inside.back();
            inside.pop_back();
            if (loop.has[block]) continue;
            loop.has[block] = true;
            inside.insert(inside.end(), blocks_[block].before.begin(), blocks_[block].before.end());
        }
        loops_.push_back(std::move(loop));
    }
    return true;
}

}  // namespace lms::code
