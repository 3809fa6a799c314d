#include "tools/simcuda/driver/stream.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/function_attributes.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/scheduler.h"

namespace simcuda::driver {
namespace {

Handles<Stream>& streams_by_handle() {
    static auto& streams_by_handle = *new Handles<Stream>;
    return streams_by_handle;
}

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> next{1};
    return next++;
}

// What new work of the stream must come after. work_mutex is held.
std::vector<WorkPtr> predecessors(Stream& stream) {
    std::vector<WorkPtr> works{stream.tail};
    Context& context = stream.context;
    if (stream.kind == Stream::Kind::Legacy) {
        std::erase_if(context.streams, [](const auto& s) { return s->destroyed && s->pending == 0; });
        for (const auto& other : context.streams) {
            if (other.get() != &stream && other->blocking()) works.push_back(other->tail);
        }
    } else if (stream.blocking()) {
        works.push_back(context.legacy_stream()->tail);
    }
    return works;
}

bool waits_for_all(const Work& work) {
    if (is(Perverse::OneQueue)) return true;
    return is(Perverse::CopiesQueue) &&
           (std::holds_alternative<CopyOp>(work.op) || std::holds_alternative<MemsetOp>(work.op));
}

// One that waits for what it comes behind is kept to that.
bool overtakes(const Work& work) {
    const auto* const launch = std::get_if<KernelOp>(&work.op);
    return is(Perverse::LaunchesOverlap) && launch != nullptr && launch->programmatic &&
           !launch->launch.kernel->waits_for_grids;
}

// Whether it may begin before the kernel before it has ended, if that is what stands before it.
bool may_begin_early(const Stream& stream, const Work& work) {
    const auto* const launch = std::get_if<KernelOp>(&work.op);
    return launch != nullptr && launch->programmatic && stream.kernel != nullptr && !stream.tail->done &&
           overlaps_kernels(stream.context.device());
}

// The nodes that this one may begin before the end of.
std::vector<std::size_t> early_behind(const Stream& stream, const GraphNode& node) {
    const bool may = std::holds_alternative<KernelOp>(node.op) && overlaps_kernels(stream.context.device());
    return may ? node.early : std::vector<std::size_t>{};
}

// Puts the work at the stream's end. work_mutex is held.
void append(Stream& stream, const WorkPtr& work, const std::vector<WorkPtr>& after) {
    std::vector<WorkPtr> all = predecessors(stream);
    all.insert(all.end(), after.begin(), after.end());
    const bool perverse = overtakes(*work);
    if (perverse) all.front() = stream.before_tail;
    if (is(Perverse::LaunchesOverlap)) stream.before_tail = stream.tail;
    if (waits_for_all(*work))
        for (const auto& other : stream.context.streams) all.push_back(other->tail);
    work->context = stream.context.shared_from_this();
    ++stream.pending;
    const bool early = !perverse && may_begin_early(stream, *work);
    const WorkPtr kernel =
        std::exchange(stream.kernel, std::holds_alternative<KernelOp>(work->op) ? work : WorkPtr(nullptr));
    if (!early) {
        work->stream = stream.shared_from_this();
        stream.tail = work;
        return enqueue(work, all);
    }
    const WorkPtr tail = std::exchange(stream.tail, std::make_shared<Work>());
    stream.tail->context = work->context;
    stream.tail->stream = stream.shared_from_this();
    all.erase(all.begin());
    enqueue_early(work, all, {{kernel, tail}}, stream.tail);
}

std::unique_lock<std::mutex> lock_with_room(Stream& stream) {
    require_use_allowed(stream);
    std::unique_lock lock(work_mutex());
    await(lock, [&] { return stream.pending < knobs().queue; });
    return lock;
}

// What a kernel uses has the size that it has from now on.
void note_launch(Context& context, const Op& op) {
    const auto* launch = std::get_if<KernelOp>(&op);
    if (launch == nullptr) return;
    if (launch->launch.kernel->prints) context.has_printed = true;
    if (launch->launch.kernel->uses_heap) context.has_used_heap = true;
}

// Handles of streams that are no more, the latest of them: a process that runs for long destroys any number.
// Those of live ones are not among them.
class Destroyed {
  public:
    void add(const void* handle) {
        std::lock_guard lock(mutex_);
        handles_[next_++ % handles_.size()] = handle;
    }
    void remove(const void* handle) {
        std::lock_guard lock(mutex_);
        std::ranges::replace(handles_, handle, nullptr);
    }
    bool contains(const void* handle) {
        std::lock_guard lock(mutex_);
        return std::ranges::find(handles_, handle) != handles_.end();
    }

  private:
    std::mutex mutex_;
    std::array<const void*, 1024> handles_{};
    std::size_t next_ = 0;
};

Destroyed& destroyed() {
    static auto& destroyed = *new Destroyed;
    return destroyed;
}

// NVIDIA's drivers know a destroyed stream's handle from one that never was.
void require_found(const std::shared_ptr<Stream>& stream, CUstream handle) {
    if (stream != nullptr) return;
    throw Failure{destroyed().contains(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE};
}

void finish(const std::vector<WorkPtr>& works) {
    std::unique_lock lock(work_mutex());
    await_all(lock, works);
}

}  // namespace

Stream::Stream(Context& owner, Kind k, unsigned stream_flags, int level)
    : context(owner), kind(k), flags(stream_flags), priority(level), id(next_id()) {}

std::shared_ptr<Stream> resolve(Context& context, CUstream handle, bool per_thread) {
    if (handle == nullptr) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (handle == CU_STREAM_LEGACY) return context.legacy_stream();
    if (handle == CU_STREAM_PER_THREAD) return context.per_thread_stream();
    auto stream = streams_by_handle().find(handle);
    require_found(stream, handle);
    return stream;
}

std::shared_ptr<Stream> resolve_anywhere(CUstream handle, bool per_thread) {
    auto stream = streams_by_handle().find(handle);
    if (stream == nullptr) {
        const bool of_context =
            handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
        if (!of_context) require_found(nullptr, handle);
        Context* context = current_context();
        require(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
        require(is_live(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        stream = resolve(*context, handle, per_thread);
    }
    const CUresult error = stream->context.error();
    require(error == CUDA_SUCCESS, error);
    return stream;
}

void require_use_allowed(Stream& stream) {
    if (stream.kind != Stream::Kind::Legacy) return;
    const CUresult allowed = capture_check_legacy_stream(stream.context);
    require(allowed == CUDA_SUCCESS, allowed);
}

WorkPtr submit(Stream& stream, Op op, const std::vector<WorkPtr>& after) {
    if (Capture* capture = stream.capture.load(); capture != nullptr) {
        capture->record(stream, std::move(op));
        return nullptr;
    }
    note_launch(stream.context, op);
    auto work = std::make_shared<Work>();
    work->op = std::move(op);
    const auto lock = lock_with_room(stream);
    append(stream, work, after);
    return work;
}

WorkPtr submit_between(Stream& stream, Op op, const std::set<std::shared_ptr<Context>>& contexts) {
    std::vector<std::shared_ptr<Stream>> others;
    std::vector<WorkPtr> before;
    {
        std::lock_guard lock(work_mutex());
        for (const auto& context : contexts) {
            for (const auto& other : context->streams) {
                before.push_back(other->tail);
                if (other.get() != &stream && !other->destroyed) others.push_back(other);
            }
        }
    }
    const WorkPtr work = submit(stream, std::move(op), before);
    for (const auto& other : others) {
        if (other->capture == nullptr) submit(*other, MarkerOp{}, {work});
    }
    return work;
}

WorkPtr submit_behind(Context& context) {
    const auto work = std::make_shared<Work>();
    work->op = MarkerOp{};
    work->context = context.shared_from_this();
    std::vector<WorkPtr> before;
    std::lock_guard lock(work_mutex());
    for (const auto& stream : context.streams) before.push_back(stream->tail);
    enqueue(work, before);
    return work;
}

std::vector<WorkPtr> submit_graph(Stream& stream, std::vector<GraphNode> nodes, const WorkPtr& earlier) {
    std::vector<WorkPtr> works(nodes.size()), kernels(nodes.size());
    const auto lock = lock_with_room(stream);
    std::vector<WorkPtr> before = predecessors(stream);
    before.push_back(earlier);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        note_launch(stream.context, nodes[i].op);
        const std::vector<std::size_t> early = early_behind(stream, nodes[i]);
        kernels[i] = works[i] = std::make_shared<Work>();
        works[i]->op = std::move(nodes[i].op);
        works[i]->context = stream.context.shared_from_this();
        std::vector<Primary> primaries;
        for (std::size_t index : early) primaries.push_back({kernels[index], works[index]});
        std::vector<WorkPtr> after;
        for (std::size_t index : nodes[i].after)
            if (std::find(early.begin(), early.end(), index) == early.end()) after.push_back(works[index]);
        if (nodes[i].after.empty()) after = before;
        after.insert(after.end(), nodes[i].waits_for.begin(), nodes[i].waits_for.end());
        if (primaries.empty()) {
            enqueue(works[i], after);
            continue;
        }
        works[i] = std::make_shared<Work>();
        works[i]->context = kernels[i]->context;
        enqueue_early(kernels[i], after, primaries, works[i]);
    }
    const auto join = std::make_shared<Work>();
    append(stream, join, works);
    works.push_back(join);
    return works;
}

CUresult wait(Context& context, const WorkPtr& work) {
    if (work != nullptr) await(work);
    return context.error();
}

CUresult synchronize(Stream& stream) {
    std::vector<WorkPtr> works;
    {
        std::lock_guard lock(work_mutex());
        works = predecessors(stream);
        // Only the legacy stream answers for others.
        if (stream.kind != Stream::Kind::Legacy) works.resize(1);
    }
    finish(works);
    return stream.context.error();
}

CUresult synchronize(Context& context) {
    std::vector<WorkPtr> works;
    {
        std::lock_guard lock(work_mutex());
        for (const auto& stream : context.streams) works.push_back(stream->tail);
    }
    finish(works);
    return context.error();
}

bool is_done(const WorkPtr& work) {
    if (work == nullptr) return true;
    std::unique_lock lock(work_mutex());
    return have_ended(lock, {work});
}

bool is_idle(Stream& stream) {
    std::unique_lock lock(work_mutex());
    auto works = predecessors(stream);
    if (stream.kind != Stream::Kind::Legacy) works.resize(1);
    return have_ended(lock, works);
}

bool is_idle(Context& context) {
    std::unique_lock lock(work_mutex());
    std::vector<WorkPtr> works;
    for (const auto& stream : context.streams) works.push_back(stream->tail);
    return have_ended(lock, works);
}

std::shared_ptr<Stream> create_stream(Context& context, unsigned flags, int priority) {
    context.charge(knobs().stream_bytes);
    auto stream = std::make_shared<Stream>(context, Stream::Kind::Created, flags, priority);
    {
        std::lock_guard lock(work_mutex());
        context.streams.push_back(stream);
    }
    destroyed().remove(stream.get());
    streams_by_handle().add(stream);
    return stream;
}

void destroy_stream(CUstream handle) {
    require(handle != nullptr && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD,
            CUDA_ERROR_INVALID_HANDLE);
    const auto stream = streams_by_handle().remove(handle);
    require_found(stream, handle);
    destroyed().add(handle);
    capture_forget(*stream);
    stream->context.refund(knobs().stream_bytes);
    std::lock_guard lock(work_mutex());
    stream->destroyed = true;
    std::erase_if(stream->context.streams, [](const auto& s) { return s->destroyed && s->pending == 0; });
}

void forget_streams(Context& context) {
    capture_forget(context);
    streams_by_handle().remove_if([&](const Stream& stream) {
        if (&stream.context != &context) return false;
        destroyed().add(&stream);
        return true;
    });
}

}  // namespace simcuda::driver
