#include "shim/access/graphs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shim/access/used_addresses.h"
#include "shim/program/handles.h"

namespace lms::shim {

namespace {

struct Executable {
    GraphPart whole;
    // Some part may be off, or something else than is known.
    bool doubtful = false;
    // A call that nobody knows may have changed it.
    bool changed_unseen = false;
    // Kernels of other graphs may launch it, unseen.
    bool from_device = false;
    std::optional<GraphContents> sum;  // of all parts that are on, once somebody asks
};

struct Executables : Handles<CUgraphExec, Executable> {
    std::size_t from_device LMS_GUARDED_BY(mutex) = 0;  // how many of them are

    void note(CUgraphExec exec, Executable executable) LMS_REQUIRES(mutex) {
        from_device += executable.from_device;
        enter(exec, std::move(executable));
    }
    std::optional<Executable> lose(CUgraphExec exec) LMS_REQUIRES(mutex) {
        std::optional<Executable> known = take(exec);
        if (known) from_device -= known->from_device;
        return known;
    }
};

Executables& executables() {
    return only<Executables>();
}

void let_go(GraphPart& part) {
    let_go(part.kept);
    for (GraphPart& inner : part.parts) let_go(inner);
}

void add_operands(const GraphPart& part, std::vector<Range>& operands) {
    operands.insert(operands.end(), part.own.operands.begin(), part.own.operands.end());
    for (const GraphPart& inner : part.parts) add_operands(inner, operands);
}

CUresult keep_each(GraphPart& part) {
    CUresult status = pin_resident(part.own.operands, part.kept);
    for (std::size_t i = 0; i < part.parts.size() && status == CUDA_SUCCESS; ++i)
        status = keep_each(part.parts[i]);
    return status;
}

CUresult keep_all(GraphPart& part) {
    std::vector<Range> operands;
    add_operands(part, operands);
    // Together first, so that they come in side by side.
    std::vector<PinnedIn> together;
    CUresult status = pin_resident(operands, together);
    if (status == CUDA_SUCCESS) status = keep_each(part);
    let_go(together);
    return status;
}

GraphPart* find(GraphPart& part, CUgraphNode node) {
    if (part.node == node) return &part;
    for (GraphPart& inner : part.parts) {
        if (GraphPart* const found = find(inner, node)) return found;
    }
    return nullptr;
}

// They are another graph's: whoever names nodes of the executable graph does not mean these.
void forget_nodes(GraphPart& part) {
    part.node = nullptr;
    for (GraphPart& inner : part.parts) forget_nodes(inner);
}

bool switch_on(GraphPart& part) {
    bool was_off = !std::exchange(part.enabled, true);
    for (GraphPart& inner : part.parts) was_off |= switch_on(inner);
    return was_off;
}

// A part of it becomes what `now` is, and `now` what that was.
void replace(Executable& executable, GraphPart& part, GraphPart& now) {
    // Nobody says whether what is changed stays off.
    executable.doubtful |= switch_on(part);
    if (exchange_paired(part, now)) return;
    forget_nodes(now);
    now.node = part.node;
    now.after = part.after;
    std::swap(part, now);
}

void add_up(const GraphPart& part, GraphContents& sum) {
    if (!part.enabled) return;
    merge(sum, part.own);
    sum.kernels.opaque |= part.device_updatable;
    for (const GraphPart& inner : part.parts) add_up(inner, sum);
}

template <typename Values>
void sort_and_unite(Values& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
}

const GraphContents& sum_of(Executable& executable) {
    if (executable.sum) return *executable.sum;
    GraphContents& sum = executable.sum.emplace();
    add_up(executable.whole, sum);
    sort_and_unite(sum.kernels.addresses);
    sort_and_unite(sum.kernels.only_read);
    sort_and_unite(sum.kernels.owners);
    sum.kernels.opaque |= executable.changed_unseen;
    if (executable.doubtful && !sum.copies.empty()) {
        // Host memory that they read may be gone, so nobody knows which pointers they leave where.
        sum.copies.clear();
        sum.kernels.opaque = true;
    }
    return sum;
}

// Calls `visit(executable)`, which changes it, if it is known.
template <typename Visit>
void alter(CUgraphExec exec, Visit&& visit) {
    const util::Lock lock(executables().mutex);
    Executable* const executable = executables().find(exec);
    if (!executable) return;
    executable->sum.reset();
    visit(*executable);
}

}  // namespace

GraphHold::GraphHold(GraphPart part) : part_(std::move(part)) {
    status_ = keep_all(part_);
}

GraphHold::~GraphHold() {
    // Launches that still run have fences of their own.
    let_go(part_);
}

void GraphHold::give_to(CUgraphExec exec, bool from_device) {
    Executable made;
    made.whole = std::exchange(part_, {});
    made.from_device = from_device;
    std::optional<Executable> before;
    {
        const util::Lock lock(executables().mutex);
        before = executables().lose(exec);
        executables().note(exec, std::move(made));
    }
    if (before) let_go(before->whole);
}

void GraphHold::update(CUgraphExec exec) {
    alter(exec, [&](Executable& executable) {
        executable.changed_unseen = false;
        replace(executable, executable.whole, part_);
    });
}

void GraphHold::change(CUgraphExec exec, CUgraphNode node) {
    alter(exec, [&](Executable& executable) {
        if (GraphPart* const part = find(executable.whole, node)) return replace(executable, *part, part_);
        executable.doubtful = true;
        forget_nodes(part_);
        part_.node = node;
        executable.whole.parts.push_back(std::exchange(part_, {}));
        executable.whole.ordered = false;
    });
}

struct GraphEnd::Known {
    Executable executable;
};

GraphEnd::GraphEnd(CUgraphExec exec) : exec_(exec) {
    const util::Lock lock(executables().mutex);
    if (auto known = executables().lose(exec)) known_ = std::make_unique<Known>(Known{std::move(*known)});
}

GraphEnd::~GraphEnd() {
    if (known_) let_go(known_->executable.whole);
}

void GraphEnd::refused() {
    if (!known_) return;
    const util::Lock lock(executables().mutex);
    executables().note(exec_, std::move(known_->executable));
    known_.reset();
}

void node_enabled(CUgraphExec exec, CUgraphNode node, bool enabled) {
    alter(exec, [&](Executable& executable) {
        if (GraphPart* const part = find(executable.whole, node)) {
            part->enabled = enabled;
        } else {
            executable.doubtful = true;
        }
    });
}

void note_unseen_call() {
    const util::Lock lock(executables().mutex);
    executables().each([](CUgraphExec, Executable& executable) {
        executable.changed_unseen = true;
        executable.sum.reset();
    });
}

void note_graph_copies(CUgraphExec exec) {
    std::vector<GraphCopy> copies;
    std::vector<WrittenWord> words;
    {
        const util::Lock lock(executables().mutex);
        Executable* const executable = executables().find(exec);
        if (!executable) return;
        const GraphContents& sum = sum_of(*executable);
        copies = sum.copies;
        words = sum.words;
    }
    for (const GraphCopy& copy : copies) note_typed(copy.to, copy.from, copy.from_type, Effect::Adds);
    for (const WrittenWord& word : words) note_word(word.at, word.value, Effect::Adds);
}

WorkingSet reach_of(CUgraphExec exec, CUstream stream) {
    WorkingSet reach;
    {
        const util::Lock lock(executables().mutex);
        if (Executable* const executable = executables().find(exec)) {
            const GraphContents& sum = sum_of(*executable);
            reach = sum.kernels;
            // They are kept on the device anyway, but the graph may be destroyed while it runs.
            reach.ranges = sum.operands;
        } else {
            // Not instantiated through the shim.
            reach.opaque = true;
        }
        reach.opaque |= executables().from_device > 0;
    }
    reach.stream = stream;
    follow_used(reach);
    follow_tables(reach);
    reach.anywhere = reach.opaque || reach.unseen;
    return reach;
}

}  // namespace lms::shim
