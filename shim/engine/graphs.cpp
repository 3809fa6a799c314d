#include "shim/engine/graphs.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace lms::engine {

namespace {

struct Part {
    GraphContents contents;
    std::vector<KeptIn> kept;
};

struct Executable {
    Part whole;
    // Nodes changed since, by their handle in the graph it was made of.
    std::unordered_map<CUgraphNode, Part> changed;
    bool some_disabled = false;
};

// Never destroyed: other libraries' exit handlers launch graphs too.
struct Registry {
    std::mutex mutex;
    std::unordered_map<CUgraphExec, Executable> executables;
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

void let_go(Executable& executable) {
    let_go(executable.whole.kept);
    for (auto& [node, part] : executable.changed) let_go(part.kept);
}

template <typename Values>
void sort_and_unite(Values& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
}

template <typename Visit>
void each_part(const Executable& executable, Visit&& visit) {
    visit(executable.whole.contents);
    for (const auto& [node, part] : executable.changed) visit(part.contents);
}

}  // namespace

GraphHold::GraphHold(GraphContents contents) : contents_(std::move(contents)) {
    sort_and_unite(contents_.kernels.addresses);
    sort_and_unite(contents_.kernels.owners);
    status_ = keep(contents_.operands, kept_);
}

GraphHold::~GraphHold() {
    let_go(kept_);
}

void GraphHold::give_to(CUgraphExec exec) {
    Executable previous;
    {
        const std::lock_guard lock(registry().mutex);
        Executable& executable = registry().executables[exec];
        previous = std::exchange(executable, Executable{});
        executable.whole = {std::move(contents_), std::exchange(kept_, {})};
        executable.some_disabled = previous.some_disabled;
    }
    // Launches that still run have fences of their own.
    let_go(previous);
}

void GraphHold::give_to(CUgraphExec exec, CUgraphNode node) {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().executables.find(exec);
    if (it == registry().executables.end()) return;
    Part& part = it->second.changed[node];
    part.contents = std::move(contents_);
    part.kept.swap(kept_);
}

void graph_destroyed(CUgraphExec exec) {
    Executable gone;
    {
        const std::lock_guard lock(registry().mutex);
        const auto it = registry().executables.find(exec);
        if (it == registry().executables.end()) return;
        gone = std::move(it->second);
        registry().executables.erase(it);
    }
    let_go(gone);
}

void node_disabled(CUgraphExec exec) {
    const std::lock_guard lock(registry().mutex);
    const auto it = registry().executables.find(exec);
    if (it != registry().executables.end()) it->second.some_disabled = true;
}

void note_graph_copies(CUgraphExec exec) {
    std::vector<GraphCopy> copies;
    {
        const std::lock_guard lock(registry().mutex);
        const auto it = registry().executables.find(exec);
        if (it == registry().executables.end() || it->second.some_disabled) return;
        each_part(it->second, [&](const GraphContents& part) {
            copies.insert(copies.end(), part.copies.begin(), part.copies.end());
        });
    }
    for (const GraphCopy& copy : copies) note_typed(copy.to, copy.from, copy.from_type, Effect::Adds);
}

Reach reach_of(CUgraphExec exec, CUstream stream) {
    GraphContents all;
    {
        const std::lock_guard lock(registry().mutex);
        const auto it = registry().executables.find(exec);
        if (it == registry().executables.end()) {
            // Not instantiated through the shim.
            all.kernels.opaque = true;
        } else {
            each_part(it->second, [&](const GraphContents& part) { merge(all, part); });
            // Nobody knows then which pointers its copies have left where.
            all.kernels.opaque |= it->second.some_disabled && !all.copies.empty();
        }
    }
    Reach reach = std::move(all.kernels);
    // They are kept on the device anyway, but the graph may be destroyed while it runs.
    reach.ranges = std::move(all.operands);
    reach.stream = stream;
    follow_tables(reach);
    return reach;
}

}  // namespace lms::engine
