#include "shim/access/graphs.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "shim/access/used_addresses.h"
#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/program/handles.h"

namespace lms::access {

namespace {

using device::driver;

struct Executable {
    GraphPart whole;
    // A part that is not known may be off, or something else.
    bool doubtful = false;
    // A call that nobody knows may have changed it.
    bool changed_unseen = false;
    // Kernels of other graphs may launch it, unseen.
    bool from_device = false;
    std::optional<GraphContents> sum;  // of all parts that are on, once somebody asks
    // The same one by one; null: some can only run as part of a graph.
    std::optional<std::shared_ptr<const GraphSteps>> steps;

    // The streams it was last launched into whole, and one by one, as the driver numbers them (number_of()).
    std::optional<std::uint64_t> whole_in;
    std::uint64_t steps_in = 0;
    CUevent steps_end = nullptr;        // behind the latter; null: it never was
    CUcontext steps_context = nullptr;  // in which that is
};

struct Executables : program::Handles<CUgraphExec, Executable> {
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
    return program::only<Executables>();
}

void let_go(GraphPart& part) {
    let_go(part.kept);
    for (GraphPart& inner : part.parts) let_go(inner);
}

// Let go of.
void end(Executable& executable) {
    let_go(executable.whole);
    if (executable.steps_end) driver().cuEventDestroy_v2(executable.steps_end);
}

void add_operands(const GraphPart& part, std::vector<session::Range>& operands) {
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
    std::vector<session::Range> operands;
    add_operands(part, operands);
    // Together first, so that they come in side by side.
    std::vector<session::PinnedIn> together;
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

// Nobody says whether what is changed stays off.
void switch_on(GraphPart& part) {
    part.enabled_doubtful |= !std::exchange(part.enabled, true);
    for (GraphPart& inner : part.parts) switch_on(inner);
}

bool any_doubtful(const GraphPart& part) {
    return part.enabled_doubtful || std::ranges::any_of(part.parts, any_doubtful);
}

bool is_doubtful(const Executable& executable) {
    return executable.doubtful || any_doubtful(executable.whole);
}

// A part of it becomes what `now` is, and `now` what that was.
void replace(GraphPart& part, GraphPart& now) {
    switch_on(part);
    if (exchange_paired(part, now)) return;
    forget_nodes(now);
    now.node = part.node;
    now.after = part.after;
    now.enabled_doubtful = any_doubtful(part);
    std::swap(part, now);
    part.attributes_doubtful = true;
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
    if (is_doubtful(executable) && !sum.copies.empty()) {
        // Host memory that they read may be gone, so nobody knows which pointers they leave where.
        sum.copies.clear();
        sum.kernels.opaque = true;
    }
    return sum;
}

// Adds the nodes of a graph, each behind those it comes after, and otherwise in the driver's order.
bool add_steps(const GraphPart& part, GraphSteps& steps) {
    if (!part.enabled) return true;
    if (part.attributes_doubtful) return false;
    if (!part.is_graph) {
        const bool alone = part.own.step && !part.device_updatable;
        if (alone && !is_nothing(*part.own.step)) steps.push_back({part.own.step, part.attributes});
        return alone;
    }
    if (!part.ordered) return false;
    std::vector<std::size_t> waits(part.parts.size());
    std::vector<std::vector<std::size_t>> behind(part.parts.size());
    std::set<std::size_t> ready;
    for (std::size_t i = 0; i < part.parts.size(); ++i) {
        waits[i] = part.parts[i].after.size();
        if (waits[i] == 0) ready.insert(i);
        for (const std::size_t before : part.parts[i].after) behind[before].push_back(i);
    }
    while (!ready.empty()) {
        const std::size_t next = *ready.begin();
        ready.erase(ready.begin());
        if (!add_steps(part.parts[next], steps)) return false;
        for (const std::size_t i : behind[next]) {
            if (--waits[i] == 0) ready.insert(i);
        }
    }
    return true;
}

std::shared_ptr<const GraphSteps> steps_of(Executable& executable) {
    if (is_doubtful(executable) || executable.changed_unseen || executable.from_device) return nullptr;
    if (!executable.steps) {
        auto steps = std::make_shared<GraphSteps>();
        executable.steps = add_steps(executable.whole, *steps) ? std::move(steps) : nullptr;
    }
    return *executable.steps;
}

// Some graph may have one. The driver keeps it until launches are over that it knows of.
constinit std::atomic<bool> any_user_objects{false};

// As the driver numbers streams, each once; 0: it does not.
std::uint64_t number_of(CUstream stream) {
    unsigned long long number = 0;
    return driver().cuStreamGetId(stream, &number) == CUDA_SUCCESS ? number : 0;
}

// Calls `visit(executable)`, which changes it, if it is known.
template <typename Visit>
void alter(CUgraphExec exec, Visit&& visit) {
    const util::Lock lock(executables().mutex);
    Executable* const executable = executables().find(exec);
    if (!executable) return;
    executable->sum.reset();
    executable->steps.reset();
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
    if (before) end(*before);
}

void GraphHold::update(CUgraphExec exec) {
    alter(exec, [&](Executable& executable) {
        executable.changed_unseen = false;
        replace(executable.whole, part_);
    });
}

void GraphHold::change(CUgraphExec exec, CUgraphNode node) {
    alter(exec, [&](Executable& executable) {
        if (GraphPart* const part = find(executable.whole, node)) return replace(*part, part_);
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
    if (known_) end(known_->executable);
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
            part->enabled_doubtful = false;
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

std::shared_ptr<const GraphSteps> steps_of(CUgraphExec exec, CUstream stream, session::AsOne as_one) {
    const std::uint64_t number = number_of(stream);
    std::shared_ptr<const GraphSteps> steps;
    {
        const util::Lock lock(executables().mutex);
        Executable* const executable = executables().find(exec);
        if (!executable || executables().from_device > 0 || any_user_objects.load()) return nullptr;
        if (executable->whole_in && (*executable->whole_in != number || number == 0)) return nullptr;
        steps = steps_of(*executable);
    }
    return steps && can_run(*steps, stream, as_one) ? steps : nullptr;
}

CUresult await_steps(CUgraphExec exec, CUstream stream) {
    CUevent end = nullptr;
    std::uint64_t in = 0;
    {
        const util::Lock lock(executables().mutex);
        const Executable* const executable = executables().find(exec);
        if (!executable || !executable->steps_end) return CUDA_SUCCESS;
        end = executable->steps_end;
        in = executable->steps_in;
    }
    if (in != 0 && in == number_of(stream)) return CUDA_SUCCESS;
    return driver().cuStreamWaitEvent(stream, end, 0);
}

void note_whole(CUgraphExec exec, CUstream stream) {
    const std::uint64_t number = number_of(stream);
    const util::Lock lock(executables().mutex);
    if (Executable* const executable = executables().find(exec)) executable->whole_in = number;
}

void note_steps(CUgraphExec exec, CUstream stream) {
    const std::uint64_t number = number_of(stream);
    const CUcontext context = device::current_context();
    CUevent end = nullptr;
    if (driver().cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
        driver().cuEventRecord(end, stream) != CUDA_SUCCESS) {
        driver().cuStreamSynchronize(stream);
    }
    {
        const util::Lock lock(executables().mutex);
        if (Executable* const executable = executables().find(exec)) {
            std::swap(executable->steps_end, end);
            executable->steps_context = context;
            executable->steps_in = number;
        }
    }
    if (end) driver().cuEventDestroy_v2(end);
}

void steps_end_with(CUcontext context) {
    const util::Lock lock(executables().mutex);
    executables().each([&](CUgraphExec, Executable& executable) {
        if (executable.steps_context == context) executable.steps_end = nullptr;
    });
}

void user_objects_used() {
    any_user_objects.store(true);
}

session::WorkingSet reach_of(CUgraphExec exec, CUstream stream) {
    session::WorkingSet reach;
    std::pmr::vector<const void*> blind_owners;
    {
        const util::Lock lock(executables().mutex);
        if (Executable* const executable = executables().find(exec)) {
            const GraphContents& sum = sum_of(*executable);
            reach = sum.kernels;
            // They are kept on the device anyway, but the graph may be destroyed while it runs.
            reach.ranges = sum.operands;
            blind_owners = sum.blind_owners;
        } else {
            // Not instantiated through the shim.
            reach.opaque = true;
        }
        reach.opaque |= executables().from_device > 0;
    }
    reach.stream = stream;
    follow_used(reach);
    follow_tables(reach);
    // What other nodes name is not what such a kernel works on.
    reach.opaque |= any_has_variables(blind_owners);
    reach.anywhere = reach.opaque || reach.unseen || settings().safety == Safety::Strict;
    return reach;
}

}  // namespace lms::access
