#include "shim/access/graph_step.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "shim/access/arguments.h"
#include "shim/access/code_registry.h"
#include "shim/access/layouts.h"
#include "shim/access/pointer_tables.h"
#include "shim/access/strided_region.h"
#include "shim/access/used_addresses.h"
#include "shim/device/driver_table.h"
#include "shim/device/scope.h"
#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/session/submit.h"
#include "shim/util/bounds.h"
#include "shim/util/clock.h"

namespace lms::access {

namespace {

// As the driver would copy them.
bool copy_parameters(void** from, KernelStep& to) {
    const auto layout = layout_of(to.function);
    if (!layout->known) return false;
    to.bytes.resize(layout->bytes());
    for (std::size_t i = 0; i < layout->parameters.size(); ++i) {
        const code::Parameter& each = layout->parameters[i];
        std::memcpy(&to.bytes[each.offset], from[i], each.bytes);
        to.parameters.push_back(&to.bytes[each.offset]);
    }
    return true;
}

bool copy_buffer(void** extra, KernelStep& to) {
    const std::span<const std::byte> packed = packed_parameters(extra);
    to.bytes.assign(packed.begin(), packed.end());
    return packed.data() != nullptr;
}

// Nothing where it says no more than none would.
std::optional<CUlaunchAttribute> attribute_of(CUgraphNode kernel, CUlaunchAttributeID id) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    if (device::driver().cuGraphKernelNodeGetAttribute(kernel, id, &attribute.value) != CUDA_SUCCESS)
        return std::nullopt;
    const auto bytes = std::as_bytes(std::span(&attribute.value, 1));
    const bool said = std::ranges::any_of(bytes, [](std::byte each) { return each != std::byte{}; });
    return said ? std::optional(attribute) : std::nullopt;
}

session::WorkingSet all_of(const KernelStep& kernel) {
    session::WorkingSet reach = kernel.reach;
    follow_used(reach);
    follow_tables(reach);
    return reach;
}

// Where an end of a copy or set is. Of the driver's memory alone it is asked.
struct Where {
    bool is_pageable = false;
    bool is_host = false;
    bool is_of(CUcontext context) const { return !owner || owner == context; }
    CUcontext owner = nullptr;  // null: memory that is of no context
};
Where where_is(const StridedRegion& side) {
    Where where;
    if (side.width == 0) return where;
    if (const session::Session* const session = session::session_at(side.begin)) {
        where.owner = session->context();
        return where;
    }
    unsigned type = 0;
    const auto told = [&](void* answer, CUpointer_attribute what) {
        return device::driver().cuPointerGetAttribute(answer, what, side.begin) == CUDA_SUCCESS;
    };
    where.is_pageable = !told(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    where.is_host = where.is_pageable || type == CU_MEMORYTYPE_HOST;
    if (!where.is_host) told(&where.owner, CU_POINTER_ATTRIBUTE_CONTEXT);
    return where;
}

// Looks at one step after the other.
class Fitness {
  public:
    Fitness(CUcontext context, session::AsOne as_one)
        : context_(context), as_one_(as_one), only_one_(program::known_contexts().size() == 1) {}

    bool operator()(std::monostate) const { return true; }
    bool operator()(const KernelStep& kernel) {
        if ((!only_one_ && kernel.context != context_) || !may_take_shared(kernel)) return false;
        const session::WorkingSet all = all_of(kernel);
        if (as_one_ == session::AsOne::Waits && (all.opaque || all.unseen)) return false;
        const session::Room room = room_for(all);
        ++kernels_;
        greedy_ += room == session::Room::Little;
        return room != session::Room::None;
    }
    bool operator()(const CUDA_MEMCPY3D& copy) const {
        const Where from = where_is(source_of(copy));
        const Where to = where_is(destination_of(copy));
        return !from.is_pageable && !to.is_pageable && !(from.is_host && to.is_host) && is_here(from) &&
               is_here(to);
    }
    bool operator()(const CUDA_MEMSET_NODE_PARAMS& set) const { return is_here(where_is({set.dst, 1})); }

    // Whether a quarter of them are.
    bool are_greedy() const { return greedy_ * 4 > kernels_; }

  private:
    bool is_here(const Where& where) const { return only_one_ || where.is_of(context_); }
    // It was allowed when the node was made.
    static bool may_take_shared(const KernelStep& kernel) {
        int most = 0;
        return kernel.shared_bytes == 0 ||
               (device::driver().cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                    kernel.function) == CUDA_SUCCESS &&
                kernel.shared_bytes <= static_cast<unsigned>(most));
    }

    CUcontext context_;
    session::AsOne as_one_;
    bool only_one_;
    std::size_t kernels_ = 0;
    std::size_t greedy_ = 0;  // that name most of what may be on a GPU
};

// So many find room in the queue of any stream.
constexpr std::size_t kFew = 256;

// Whether the queue has room for so many more, for which it is waited as long as the stream gets further. For
// more than any has, it is to be empty.
bool gets_room(CUstream stream, std::size_t steps) {
    std::uint64_t before = UINT64_MAX;
    for (auto since = util::Clock::now(); util::Clock::now() - since < bounds::kStalledWork;) {
        const std::uint64_t unfinished = session::unfinished_in(stream);
        if (steps <= kFew && unfinished + steps <= kFew) return true;
        {
            // A question would end what is captured.
            const program::CapturesHeldOff held_off;
            if (!held_off || program::capturing_anywhere()) return false;
            const CUresult status = device::driver().cuStreamQuery(stream);
            if (status != CUDA_ERROR_NOT_READY) return status == CUDA_SUCCESS;
        }
        if (unfinished < before) since = util::Clock::now();
        before = unfinished;
        util::pause(bounds::kAhead);
    }
    return false;
}

}  // namespace

std::shared_ptr<const GraphStep> step_of(const CUDA_KERNEL_NODE_PARAMS_v2& kernel) {
    KernelStep step{};
    step.function = kernel.func ? kernel.func : reinterpret_cast<CUfunction>(kernel.kern);
    step.context = kernel.func ? context_of(kernel.func) : kernel.ctx;
    const unsigned blocks[] = {kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ};
    const unsigned threads[] = {kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ};
    std::memcpy(step.blocks, blocks, sizeof blocks);
    std::memcpy(step.threads, threads, sizeof threads);
    step.shared_bytes = kernel.sharedMemBytes;
    const code::LaunchShape shape{{blocks[0], blocks[1], blocks[2]}, {threads[0], threads[1], threads[2]}};
    add_arguments(step.reach, step.function, kernel.kernelParams, kernel.extra, &shape, true);
    const bool copied = kernel.kernelParams ? copy_parameters(kernel.kernelParams, step)
                        : kernel.extra      ? copy_buffer(kernel.extra, step)
                                            : true;
    return copied ? std::make_shared<const GraphStep>(std::move(step)) : nullptr;
}

bool is_nothing(const GraphStep& step) {
    const auto* const set = std::get_if<CUDA_MEMSET_NODE_PARAMS>(&step);
    return std::holds_alternative<std::monostate>(step) || (set && (set->width == 0 || set->height == 0));
}

std::vector<CUlaunchAttribute> attributes_of(CUgraphNode kernel) {
    constexpr auto kPortableClusterSizeMode = static_cast<CUlaunchAttributeID>(17);  // since CUDA 13.1
    // Without these it may not run, or not as it should. The others tell how fast.
    constexpr CUlaunchAttributeID kNeeded[] = {
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
        CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, kPortableClusterSizeMode};
    std::vector<CUlaunchAttribute> attributes;
    for (const CUlaunchAttributeID id : kNeeded) {
        if (const auto attribute = attribute_of(kernel, id)) attributes.push_back(*attribute);
    }
    return attributes;
}

bool can_run(const GraphSteps& steps, CUstream stream, session::AsOne as_one) {
    const CUcontext context = device::current_context();
    if (!context || session::context_of(stream) != context) return false;
    Fitness fits(context, as_one);
    return std::ranges::all_of(steps, [&](const PlacedStep& each) { return std::visit(fits, *each.step); }) &&
           !fits.are_greedy() && gets_room(stream, steps.size());
}

}  // namespace lms::access
