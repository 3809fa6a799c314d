// A stream: what a CUstream points to, and how work is given to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/graph/capture.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class Context;
struct Event;

class Stream : public std::enable_shared_from_this<Stream> {
  public:
    enum class Kind { Legacy, PerThread, Created };

    Stream(Context& context, Kind kind, unsigned flags, int priority);
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // Blocking streams wait for the legacy stream and it for them.
    bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
    CUstream handle() { return reinterpret_cast<CUstream>(this); }

    Context& context;
    const Kind kind;
    const unsigned flags;
    const int priority;
    const std::uint64_t id;

    // Set while the stream captures; submit() then records. Owned by capture.cpp.
    std::atomic<Capture*> capture{nullptr};

    // cuStreamSet/GetAttribute: kept, without effect. attribute() throws Failure with
    // CUDA_ERROR_INVALID_VALUE for one that streams do not have.
    CUstreamAttrValue attribute(CUstreamAttrID which) const;
    void set_attribute(CUstreamAttrID which, const CUstreamAttrValue& value);
    void copy_attributes(const Stream& from);

    // Guarded by the scheduler's mutex.
    WorkPtr tail;          // the last work submitted; null or done: the stream is idle
    WorkPtr kernel;        // the last work submitted, if that was a launch; `tail` has ended when it has
    WorkPtr before_tail;   // of a perverse driver: the one before
    unsigned pending = 0;  // submitted and not done
    bool destroyed = false;

  private:
    mutable std::mutex attributes_mutex_;
    std::map<CUstreamAttrID, CUstreamAttrValue> attributes_;
};

// What a stream or a kernel may say of the cache. Throws Failure with CUDA_ERROR_INVALID_VALUE.
void check_access_window(const CUaccessPolicyWindow& window);

// The stream a handle means: 0, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD or a created one, which may be another
// context's: all but kernels can be given to those. Throws Failure with CUDA_ERROR_INVALID_HANDLE.
std::shared_ptr<Stream> resolve(Context& context, CUstream handle, bool per_thread);

// For calls that need a current context only where the handle means a default stream. Throws Failure:
// CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_CONTEXT, or the error of the stream's context.
std::shared_ptr<Stream> resolve_anywhere(CUstream handle, bool per_thread);

// Throws Failure, and the captures concerned are invalid, where they forbid the use of this stream.
void require_use_allowed(Stream& stream);

// Puts `op` behind what the stream has (and, by the legacy stream's rules, what other streams have) and
// behind `after`. Blocks while the stream's launch queue is full. On a capturing stream it is recorded
// instead and null is returned. The only door: every API call that gives work to a stream comes through here.
// Throws Failure.
WorkPtr submit(Stream& stream, Op op, const std::vector<WorkPtr>& after = {});

// The same, behind all that the contexts' streams have and before all that they are given later.
WorkPtr submit_between(Stream& stream, Op op, const std::set<std::shared_ptr<Context>>& contexts);

// In no stream: ends when all that the context's streams have has ended, and nothing waits for it.
WorkPtr submit_behind(Context& context);

// Submits a graph as one step of the stream: node i starts after the stream's earlier work, `earlier`, the
// nodes named in nodes[i].after (indices below i) and nodes[i].waits_for; the stream goes on when all have
// ended. Returns each node's work, then the join.
struct GraphNode {
    Op op;
    std::vector<std::size_t> after;
    std::vector<WorkPtr> waits_for;
    std::vector<std::size_t> early = {};  // of `after`: kernels before whose end a kernel may begin
};
std::vector<WorkPtr> submit_graph(Stream& stream, std::vector<GraphNode> nodes, const WorkPtr& earlier);

// Blocks until the work has ended; returns the context's error. Null: returns at once.
CUresult wait(Context& context, const WorkPtr& work);

// Blocks until all work submitted to the stream (context, device) so far has ended; returns the context's
// error.
CUresult synchronize(Stream& stream);
CUresult synchronize(Context& context);

bool is_idle(Context& context);     // nothing submitted to any of its streams is left
bool is_done(const WorkPtr& work);  // true for null
bool is_idle(
    Stream& stream);  // nothing submitted to it (to the legacy stream: nor to what it waits for) is left

// Creation and end; destroying leaves pending work running. Throw Failure.
std::shared_ptr<Stream> create_stream(Context& context, unsigned flags, int priority);
void destroy_stream(CUstream handle);
void forget_streams(Context& context);  // its handles are no longer valid

}  // namespace simcuda::driver
