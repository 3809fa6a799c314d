// Captures, and the graphs they become: launched, updated, changed node by node.
#include "tests/random/machine.h"

namespace rnd {

// What copies and sets of a graph name stays on the GPU as long as the graph lives (docs/compatibility.md),
// so a program whose graphs name much of that may rightly run out of memory.
static constexpr std::uint32_t kKeptLimit = 12 << 10;

bool Machine::fits_capture(Capture& capture, const Op& op, const UseList& uses) {
    if (is_kernel(op)) return true;
    auto kept = capture.kept;
    for (const Use& use : uses) kept[use.buffer] = buffers_[use.buffer].bytes;
    std::uint32_t sum = 0;
    for (const auto& [buffer, bytes] : kept) sum += bytes;
    if (sum > kKeptLimit) return false;
    capture.kept = std::move(kept);
    kept_bytes_ += kKeptLimit;
    return true;
}

bool Machine::names_what_lives(const std::vector<Step>& steps) const {
    for (const Step& step : steps) {
        for (const Use& use : step.uses) {
            if (buffers_[use.buffer].born != use.born) return false;
        }
    }
    return true;
}

void Machine::begin(Hand& hand, const Op& op) {
    const unsigned slot = slot_of(hand, op.a[0]);
    if (slot == kLegacy || !usable(hand, slot) || (together_ && streams_[slot].blocking)) return;
    std::uint32_t mode = op.a[1] % 3;
    if (together_ && mode == CU_STREAM_CAPTURE_MODE_GLOBAL) mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    if (!bury(hand, slot)) return;
    const auto how = static_cast<CUstreamCaptureMode>(mode);
    if (!ok(CU(cuStreamBeginCapture_v2)(stream_of(slot), how), "cuStreamBeginCapture")) return;
    auto capture = std::make_unique<Capture>();
    capture->origin = slot;
    capture->thread = hand.thread;
    capture->mode = mode;
    capture->members = {slot};
    streams_[slot].capture = capture.get();
    const std::lock_guard lock(capturing_);
    captures_.push_back(std::move(capture));
}

void Machine::fork(Hand& hand, const Op& op) {
    const unsigned from = slot_of(hand, op.a[0]);
    const unsigned slot = slot_of(hand, op.a[1]);
    Capture* const capture = streams_[from].capture;
    if (!capture || capture->thread != hand.thread || slot == kLegacy || !usable(hand, slot)) return;
    if (device_of(from) != device_of(slot)) return;
    if ((together_ && streams_[slot].blocking) || !bury(hand, slot)) return;
    if (!wait_by_event(hand, from, slot)) return;
    streams_[slot].capture = capture;
    capture->view.streams[slot] = capture->view.streams[from];
    const std::lock_guard lock(capturing_);
    capture->members.insert(slot);
}

void Machine::captured(const Op& op, unsigned slot, const UseList& uses) {
    Capture& capture = *streams_[slot].capture;
    const unsigned in = lane(slot, 0);
    const std::uint32_t number = ++capture.count[slot];
    capture.view.streams[slot].at[in] = number;
    Step step{op, uses, nullptr};
    for (Use& use : step.uses) {
        capture.uses[use.buffer].note(use.mode, in, number);
        use.born = buffers_[use.buffer].born;
    }
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* last = nullptr;
    std::size_t count = 0;
    if (!ok(CU(cuStreamGetCaptureInfo_v2)(stream_of(slot), &status, nullptr, nullptr, &last, &count),
            "cuStreamGetCaptureInfo"))
        return;
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1) return fail("the capture has no last node");
    step.node = last[0];
    capture.steps.push_back(std::move(step));
}

// Joins what was forked and ends it.
void Machine::end_capture(Hand& hand, Capture& capture, CUgraph& graph) {
    for (const unsigned member : capture.members) {
        if (member != capture.origin && !wait_by_event(hand, member, capture.origin)) return;
    }
    if (!ok(CU(cuStreamEndCapture)(stream_of(capture.origin), &graph), "cuStreamEndCapture")) return;
    const std::lock_guard lock(capturing_);
    for (const unsigned member : capture.members) streams_[member].capture = nullptr;
    std::erase_if(captures_, [&](const auto& one) { return one.get() == &capture; });
}

void Machine::end(Hand& hand, const Op& op) {
    const unsigned slot = slot_of(hand, op.a[0]);
    Capture* const capture = streams_[slot].capture;
    if (!capture || capture->origin != slot || capture->thread != hand.thread) return;
    std::vector<Step> steps = std::move(capture->steps);
    CUgraph made = nullptr;
    end_capture(hand, *capture, made);
    if (failed_) return;
    Graph& graph = graphs_[op.a[1] % kGraphs];
    enter(device_of(slot));
    if (graph.alive && op.a[2] % 2 && graph.device == device_of(slot) && names_what_lives(steps)) {
        CUgraphExecUpdateResultInfo info{};
        const CUresult updated = CU(cuGraphExecUpdate_v2)(graph.exec, made, &info);
        if (updated == CUDA_SUCCESS) {
            // Nodes are named by the graph that the executable one was made from.
            for (std::size_t i = 0; i < steps.size(); ++i) steps[i].node = nullptr;
            graph.steps = std::move(steps);
        } else if (updated != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
            ok(updated, "cuGraphExecUpdate");
        }
        (*codes_)[hand.at] = static_cast<std::uint32_t>(updated) + 1;
        ok(CU(cuGraphDestroy)(made), "cuGraphDestroy");
        return;
    }
    // The driver looks at what copies and sets name.
    if (forbidden(hand) || !names_what_lives(steps)) {
        ok(CU(cuGraphDestroy)(made), "cuGraphDestroy");
        return;
    }
    unmake(graph);
    if (!ok(CU(cuGraphInstantiateWithFlags)(&graph.exec, made, 0), "cuGraphInstantiate")) return;
    graph.alive = true;
    graph.device = device_of(slot);
    graph.graph = made;
    graph.steps = std::move(steps);
}

void Machine::launch(Hand& hand, const Op& op) {
    Graph& graph = graphs_[op.a[1] % kGraphs];
    const unsigned slot = slot_of(hand, op.a[0]);
    if (!graph.alive || graph.steps.empty() || streams_[slot].capture || graph.device != device_of(slot))
        return;
    std::map<std::uint32_t, Mode> modes;
    for (const Step& step : graph.steps) {
        for (const Use& use : step.uses) {
            const auto [it, is_new] = modes.emplace(use.buffer, use.mode);
            if (!is_new && it->second != use.mode) it->second = Mode::Write;
        }
    }
    UseList uses;
    for (const auto& [buffer, mode] : modes) uses.push_back({buffer, mode});
    if (!may_use(hand, uses)) return;
    if (!names_what_lives(graph.steps) || !prepare(hand, op, slot, uses)) return;
    if (!taken(CU(cuGraphLaunch)(graph.exec, stream_of(slot)), "cuGraphLaunch", uses)) return;
    submitted(hand, slot, uses);
    for (const Step& step : graph.steps) apply(step.op);
}

// Another constant for one kernel node of an executable graph.
void Machine::retune(Hand&, const Op& op) {
    Graph& graph = graphs_[op.a[0] % kGraphs];
    if (!graph.alive || graph.steps.empty()) return;
    Step& step = graph.steps[op.a[1] % graph.steps.size()];
    Op& kernel = step.op;
    if (kernel.verb != Verb::mix || !step.node) return;
    if (!names_what_lives({step}) || !enter(graph.device)) return;
    CUdeviceptr addresses[] = {buffers_[kernel.a[1]].address, buffers_[kernel.a[2]].address,
                               buffers_[kernel.a[3]].address};
    void* arguments[] = {&addresses[0], &addresses[1], &addresses[2],
                         &kernel.a[4],  &kernel.a[5],  &kernel.a[6]};
    kernel.a[6] = op.a[2];
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = devices_[device_of(kernel.a[0] % (kPerThread + 1))].functions.at("mix");
    params.gridDimX = (kernel.a[5] + 127) / 128;
    params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
    params.blockDimX = 128;
    params.kernelParams = arguments;
    ok(CU(cuGraphExecKernelNodeSetParams_v2)(graph.exec, step.node, &params),
       "cuGraphExecKernelNodeSetParams");
}

void Machine::unmake(Graph& graph) {
    if (!graph.alive) return;
    ok(CU(cuGraphExecDestroy)(graph.exec), "cuGraphExecDestroy");
    ok(CU(cuGraphDestroy)(graph.graph), "cuGraphDestroy");
    graph = {};
}

}  // namespace rnd
