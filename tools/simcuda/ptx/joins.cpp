// Blocks, their post-dominators (after Cooper, Harvey and Kennedy), and the joins among them.
#include "tools/simcuda/ptx/joins.h"

#include <algorithm>

namespace simcuda::ptx {
namespace {

constexpr std::size_t kNone = SIZE_MAX;

struct Block {
    std::size_t begin, end;  // statements
    bool meets = false;
    bool matters = false;  // something behind it meets
    bool parts = false;    // its branch may part threads
    bool leaves = false;   // for where nothing matters, among others
    std::vector<std::size_t> successors = {};
};

class Graph {
  public:
    Graph(const Function& function, const std::function<bool(const Instruction&)>& meets)
        : function_(function), body_(function.body) {
        divide(meets);
        connect();
        drop_what_does_not_matter();
        find_post_dominators();
    }

    Joins joins() const {
        Joins joins{std::vector<bool>(body_.size()), std::vector<unsigned>(body_.size())};
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            unsigned depth = 0;
            for (std::size_t at = b; at != end() && at != kNone; at = immediate_[at]) ++depth;
            std::fill(joins.depth.begin() + static_cast<std::ptrdiff_t>(blocks_[b].begin),
                      joins.depth.begin() + static_cast<std::ptrdiff_t>(blocks_[b].end), depth);
            const std::size_t join = immediate_[b];
            if (join != end() && join != kNone && blocks_[b].parts && meets_between(b, join))
                joins.before[blocks_[join].begin] = true;
        }
        return joins;
    }

  private:
    std::size_t end() const { return blocks_.size(); }  // where all paths end

    static bool is_end(const Instruction& instruction) {
        return instruction.opcode == "ret" || instruction.opcode == "exit" || instruction.opcode == "trap";
    }
    static bool is_branch(const Instruction& instruction) {
        return instruction.opcode == "bra" || instruction.opcode == "brx";
    }

    void divide(const std::function<bool(const Instruction&)>& meets) {
        label_at_.resize(function_.labels.size(), kNone);
        bool begins = true;
        for (std::size_t i = 0; i < body_.size(); ++i) {
            const bool is_label = body_[i].label >= 0;
            if (begins || is_label) blocks_.push_back({i, i});
            Block& block = blocks_.back();
            block.end = i + 1;
            if (is_label) label_at_[static_cast<std::size_t>(body_[i].label)] = blocks_.size() - 1;
            begins = !is_label && (is_branch(body_[i].instruction) || is_end(body_[i].instruction));
            block.meets |= !is_label && meets(body_[i].instruction);
        }
    }

    void connect() {
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
            Block& block = blocks_[b];
            const Statement& last = body_[block.end - 1];
            const bool jumps = last.label < 0 && is_branch(last.instruction);
            const bool ends = last.label < 0 && is_end(last.instruction);
            const bool always = last.label < 0 && last.instruction.predicate < 0;
            if (jumps) connect_targets(block, last.instruction);
            // Threads that end are waited for no longer. Those that return go on in the caller.
            if (ends && (always || !function_.entry)) block.successors.push_back(end());
            if (!((jumps || ends) && always)) block.successors.push_back(b + 1);
            block.parts = jumps && !last.instruction.has("uni");
        }
    }

    void connect_targets(Block& block, const Instruction& branch) {
        const auto add = [&](int label) {
            if (label >= 0 && label_at_[static_cast<std::size_t>(label)] != kNone)
                block.successors.push_back(label_at_[static_cast<std::size_t>(label)]);
        };
        if (branch.operands.empty()) return;
        if (branch.opcode == "bra") return add(branch.operands[0].label);
        const int table = branch.operands.back().label;
        if (table < 0) return;
        for (const Operand& target : function_.labels[static_cast<std::size_t>(table)].targets)
            add(target.label);
    }

    // Paths on which nothing meets any more lead to the end as far as the others are concerned.
    void drop_what_does_not_matter() {
        for (bool changed = true; changed;) {
            changed = false;
            for (std::size_t b = blocks_.size(); b-- > 0;) {
                Block& block = blocks_[b];
                if (block.matters) continue;
                block.matters = block.meets;
                for (const std::size_t s : block.successors)
                    block.matters |= s == end() ? !function_.entry : blocks_[s].matters;
                changed |= block.matters;
            }
        }
        for (Block& block : blocks_) {
            block.leaves = std::erase_if(block.successors, [&](std::size_t s) {
                               return s == end() ? function_.entry : !blocks_[s].matters;
                           }) != 0;
            if (block.successors.empty()) block.successors.push_back(end());
        }
        keep_ways_out();
    }

    // A loop that is only left for where nothing matters ends where it is left last.
    void keep_ways_out() {
        for (;;) {
            std::vector<bool> ends = ending();
            std::size_t last = blocks_.size();
            while (last-- > 0)
                if (!ends[last] && blocks_[last].leaves) break;
            if (last == kNone) return;
            blocks_[last].successors.push_back(end());
        }
    }

    // The blocks from which a path leads to the end.
    std::vector<bool> ending() const {
        std::vector<bool> ends(blocks_.size() + 1);
        ends[end()] = true;
        for (bool changed = true; changed;) {
            changed = false;
            for (std::size_t b = blocks_.size(); b-- > 0;)
                for (const std::size_t s : blocks_[b].successors)
                    if (!ends[b] && ends[s]) ends[b] = changed = true;
        }
        return ends;
    }

    void find_post_dominators() {
        std::vector<std::vector<std::size_t>> before(blocks_.size() + 1);
        for (std::size_t b = 0; b < blocks_.size(); ++b)
            for (const std::size_t s : blocks_[b].successors) before[s].push_back(b);
        // In the order in which a walk back from the end leaves them.
        std::vector<std::size_t> order, number(blocks_.size() + 1, kNone);
        std::vector<std::pair<std::size_t, std::size_t>> walk{{end(), 0}};
        std::vector<bool> seen(blocks_.size() + 1);
        seen[end()] = true;
        while (!walk.empty()) {
            auto& [at, next] = walk.back();
            if (next < before[at].size()) {
                const std::size_t to = before[at][next++];
                if (!seen[to]) {
                    seen[to] = true;
                    walk.push_back({to, 0});
                }
            } else {
                number[at] = order.size();
                order.push_back(at);
                walk.pop_back();
            }
        }
        immediate_.assign(blocks_.size() + 1, kNone);
        immediate_[end()] = end();
        const auto common = [&](std::size_t a, std::size_t b) {
            while (a != b) (number[a] < number[b] ? a : b) = immediate_[number[a] < number[b] ? a : b];
            return a;
        };
        for (bool changed = true; changed;) {
            changed = false;
            for (std::size_t i = order.size() - 1; i-- > 0;) {
                std::size_t found = kNone;
                for (const std::size_t s : blocks_[order[i]].successors)
                    if (immediate_[s] != kNone) found = found == kNone ? s : common(found, s);
                changed |= immediate_[order[i]] != found;
                immediate_[order[i]] = found;
            }
        }
    }

    bool meets_between(std::size_t from, std::size_t join) const {
        std::vector<bool> seen(blocks_.size());
        std::vector<std::size_t> pending = blocks_[from].successors;
        if (pending.size() < 2) return false;
        while (!pending.empty()) {
            const std::size_t at = pending.back();
            pending.pop_back();
            if (at == join || at == end() || seen[at]) continue;
            seen[at] = true;
            if (blocks_[at].meets) return true;
            pending.insert(pending.end(), blocks_[at].successors.begin(), blocks_[at].successors.end());
        }
        return false;
    }

    const Function& function_;
    const std::vector<Statement>& body_;
    std::vector<Block> blocks_;
    std::vector<std::size_t> label_at_;   // by label: the block it begins
    std::vector<std::size_t> immediate_;  // post-dominators; kNone where no path leads to the end
};

}  // namespace

Joins joins_of(const Function& function, const std::function<bool(const Instruction&)>& meets) {
    const auto meeting = [&](const Statement& statement) {
        return statement.label < 0 && meets(statement.instruction);
    };
    if (std::none_of(function.body.begin(), function.body.end(), meeting))
        return {std::vector<bool>(function.body.size()), std::vector<unsigned>(function.body.size())};
    return Graph(function, meets).joins();
}

}  // namespace simcuda::ptx
