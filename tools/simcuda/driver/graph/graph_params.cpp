#include "tools/simcuda/driver/graph/graph_params.h"

#include <algorithm>
#include <utility>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/array.h"
#include "tools/simcuda/driver/cluster.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/copy.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/event.h"
#include "tools/simcuda/driver/graph/conditional.h"
#include "tools/simcuda/driver/graph/graph_memory.h"
#include "tools/simcuda/driver/launch.h"
#include "tools/simcuda/driver/library.h"
#include "tools/simcuda/driver/stream_value.h"

namespace simcuda::driver {
namespace {

bool cooperative(const KernelNode& node) {
    auto attribute = node.attributes.find(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    return attribute != node.attributes.end() && attribute->second.cooperative != 0;
}

// That a node's attribute asks for; it is checked when the graph is made executable.
ClusterShape cluster_of_node(Context& context, const KernelNode& node, const CUlaunchAttributeValue& value) {
    const exec::Launch& launch = node.op.launch;
    LaunchShape shape{{},
                      {},
                      launch.dynamic_shared_bytes,
                      launch.cooperative,
                      {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z}};
    std::copy_n(launch.grid, 3, shape.grid);
    std::copy_n(launch.block, 3, shape.block);
    return cluster_of(find_launchable(node.op.function)->bind(context), shape);
}

// Null for a function of a module.
CUkernel as_library_kernel(CUfunction function) {
    auto* kernel = dynamic_cast<LibraryKernel*>(find_launchable(function).get());
    return kernel ? kernel->kernel_handle() : nullptr;
}

// Pointers to the values in the node's own parameter block.
void** own_parameters(KernelNode& node) {
    const exec::Launch& launch = node.op.launch;
    node.parameters.clear();
    for (const ptx::Parameter& parameter : launch.kernel->parameters) {
        node.parameters.push_back(const_cast<std::byte*>(launch.parameters.data()) + parameter.offset);
    }
    return node.parameters.data();
}

struct ApiEnd {
    CUmemorytype type;
    CUdeviceptr device;
    const void* host;
    CUarray array = nullptr;
    std::size_t x = 0, y = 0, z = 0;  // in the array; x in bytes
};

ApiEnd api_end(const CopyEnd& end) {
    if (end.place == Place::Device) {
        const auto array = array_at(end.address);
        if (array == nullptr) return {CU_MEMORYTYPE_DEVICE, end.address, nullptr};
        const std::size_t offset = end.address - array->memory->address, row = offset / array->pitch;
        return {CU_MEMORYTYPE_ARRAY, 0, nullptr, array->handle(), offset % array->pitch, row % array->rows(),
                row / array->rows()};
    }
    // Host-located VMM memory is named by its device address.
    if (CUdeviceptr device = other_side(end.address);
        device >= kDeviceWindowBegin && device < kDeviceWindowEnd) {
        return {CU_MEMORYTYPE_DEVICE, device, nullptr};
    }
    return {CU_MEMORYTYPE_HOST, 0, reinterpret_cast<const void*>(end.address)};
}

CUDA_MEMCPY3D api_copy(const CopyOp& op) {
    const ApiEnd from = api_end(op.from);
    const ApiEnd to = api_end(op.to);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = from.type;
    copy.srcDevice = from.device;
    copy.srcHost = from.host;
    copy.srcArray = from.array;
    copy.srcXInBytes = from.x;
    copy.srcY = from.y;
    copy.srcZ = from.z;
    copy.srcPitch = op.from.pitch;
    copy.srcHeight = op.from.slice_rows;
    copy.dstMemoryType = to.type;
    copy.dstDevice = to.device;
    copy.dstHost = const_cast<void*>(to.host);
    copy.dstArray = to.array;
    copy.dstXInBytes = to.x;
    copy.dstY = to.y;
    copy.dstZ = to.z;
    copy.dstPitch = op.to.pitch;
    copy.dstHeight = op.to.slice_rows;
    copy.WidthInBytes = op.width;
    copy.Height = op.height;
    copy.Depth = op.depth;
    return copy;
}

CUDA_KERNEL_NODE_PARAMS_v2 version_2(const CUDA_KERNEL_NODE_PARAMS_v3& p) {
    return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
            p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    p.kern,      p.ctx};
}

CUDA_MEM_ALLOC_NODE_PARAMS version_1(const CUDA_MEM_ALLOC_NODE_PARAMS_v2& p) {
    return {p.poolProps, p.accessDescs, p.accessDescCount, p.bytesize, p.dptr};
}

// What there is no event for: a graph calls it a bad value, not a bad handle.
std::shared_ptr<Event> node_event(CUevent handle) {
    require(is_event(handle), CUDA_ERROR_INVALID_VALUE);
    return checked_event(handle);
}

}  // namespace

CUmemorytype memory_type(const CopyEnd& end) {
    return api_end(end).type;
}

EventRecordNode record_work(CUevent event) {
    return {node_event(event)};
}

EventWaitNode wait_work(CUevent event) {
    return {node_event(event)};
}

KernelNode kernel_work(Context& context, const CUDA_KERNEL_NODE_PARAMS_v2& p) {
    KernelNode node;
    node.function = p.func ? p.func : reinterpret_cast<CUfunction>(p.kern);
    LaunchShape shape{{p.gridDimX, p.gridDimY, p.gridDimZ},
                      {p.blockDimX, p.blockDimY, p.blockDimZ},
                      p.sharedMemBytes,
                      false};
    shape.cluster_comes_later = true;  // as an attribute
    node.op = make_launch(context, node.function, shape, p.kernelParams, p.extra);
    node.kernel = as_library_kernel(node.function);
    return node;
}

MemcpyNode memcpy_work(Context& context, const CUDA_MEMCPY3D& copy) {
    pitched_copy(context, copy);  // refuses what cannot be done
    return {copy};
}

MemsetNode memset_work(Context& context, const CUDA_MEMSET_NODE_PARAMS& p) {
    const bool element = p.elementSize == 1 || p.elementSize == 2 || p.elementSize == 4;
    require(element && p.width != 0 && p.height != 0, CUDA_ERROR_INVALID_VALUE);
    require(p.dst % p.elementSize == 0 && (p.height == 1 || p.pitch / p.elementSize >= p.width),
            CUDA_ERROR_INVALID_VALUE);
    device_end(context, p.dst, pitched_span(p.width, p.elementSize, p.height, p.pitch));
    return {MemsetOp{p.dst, p.pitch, p.width, p.height, p.value, p.elementSize}};
}

HostNode host_work(const CUDA_HOST_NODE_PARAMS& p) {
    require(p.fn != nullptr, CUDA_ERROR_INVALID_VALUE);
    return {p.fn, p.userData};
}

MemAllocNode alloc_work(const CUDA_MEM_ALLOC_NODE_PARAMS& p) {
    const CUmemPoolProps& properties = p.poolProps;
    require(properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE && p.bytesize != 0,
            CUDA_ERROR_INVALID_VALUE);
    Device& device = device_at(properties.location);
    require(p.accessDescCount <= devices().size() && (p.accessDescs != nullptr || p.accessDescCount == 0),
            CUDA_ERROR_INVALID_VALUE);
    MemAllocNode node{create_graph_memory(device, p.bytesize), properties};
    if (p.accessDescCount != 0) node.access.assign(p.accessDescs, p.accessDescs + p.accessDescCount);
    for (const CUmemAccessDesc& access : node.access) device_at(access.location);
    return node;
}

MemFreeNode free_work(CUdeviceptr address) {
    auto memory = graph_memory_at(address);
    require(memory != nullptr && memory->address() == address, CUDA_ERROR_INVALID_VALUE);
    return {std::move(memory)};
}

BatchMemOpNode batch_work(const Context& context, const CUDA_BATCH_MEM_OP_NODE_PARAMS& p) {
    require((p.paramArray != nullptr || p.count == 0) && p.flags == 0, CUDA_ERROR_INVALID_VALUE);
    BatchMemOpNode node;
    if (p.count != 0) node.items.assign(p.paramArray, p.paramArray + p.count);
    node.ops = value_ops(context, node.items);
    return node;
}

ConditionalNode conditional_work(const CUDA_CONDITIONAL_NODE_PARAMS& p) {
    const auto conditional = checked_conditional(p.handle);
    require(checked_context(p.ctx) == conditional->context.lock(), CUDA_ERROR_INVALID_VALUE);
    const bool sized = p.type == CU_GRAPH_COND_TYPE_IF      ? p.size == 1 || p.size == 2
                       : p.type == CU_GRAPH_COND_TYPE_WHILE ? p.size == 1
                                                            : p.size != 0;
    require(p.type >= CU_GRAPH_COND_TYPE_IF && p.type <= CU_GRAPH_COND_TYPE_SWITCH && sized,
            CUDA_ERROR_INVALID_VALUE);
    ConditionalNode node{conditional, p.type, {}, {}};
    for (unsigned i = 0; i < p.size; ++i) {
        node.bodies.push_back(create_graph());
        node.handles.push_back(node.bodies.back()->handle());
    }
    return node;
}

NodeWork node_work(Context& context, CUgraphNodeParams& p) {
    switch (p.type) {
        case CU_GRAPH_NODE_TYPE_EMPTY:
            return EmptyNode{};
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return kernel_work(context, version_2(p.kernel));
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return memcpy_work(context, p.memcpy.copyParams);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return memset_work(context, {p.memset.dst, p.memset.pitch, p.memset.value, p.memset.elementSize,
                                         p.memset.width, p.memset.height});
        case CU_GRAPH_NODE_TYPE_HOST:
            return host_work({p.host.fn, p.host.userData});
        case CU_GRAPH_NODE_TYPE_GRAPH:
            require(p.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE ||
                        p.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE,
                    CUDA_ERROR_INVALID_VALUE);
            if (p.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
                return as_moved_child(checked_graph(p.graph.graph));
            return as_child(*checked_graph(p.graph.graph));
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return record_work(p.eventRecord.event);
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return wait_work(p.eventWait.event);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
            MemAllocNode node = alloc_work(version_1(p.alloc));
            p.alloc.dptr = node.memory->address();
            return node;
        }
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return free_work(p.free.dptr);
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return batch_work(context, {p.memOp.ctx, p.memOp.count, p.memOp.paramArray, p.memOp.flags});
        case CU_GRAPH_NODE_TYPE_CONDITIONAL: {
            ConditionalNode node = conditional_work(p.conditional);
            p.conditional.phGraph_out = node.handles.data();  // stays where it is
            return node;
        }
        default:
            throw Failure{CUDA_ERROR_NOT_SUPPORTED};
    }
}

CUDA_KERNEL_NODE_PARAMS_v2 kernel_parameters(KernelNode& node) {
    const exec::Launch& launch = node.op.launch;
    CUDA_KERNEL_NODE_PARAMS_v2 p{};
    p.func = node.kernel ? nullptr : node.function;
    p.kern = node.kernel;
    p.gridDimX = launch.grid[0];
    p.gridDimY = launch.grid[1];
    p.gridDimZ = launch.grid[2];
    p.blockDimX = launch.block[0];
    p.blockDimY = launch.block[1];
    p.blockDimZ = launch.block[2];
    p.sharedMemBytes = launch.dynamic_shared_bytes;
    p.kernelParams = own_parameters(node);
    return p;
}

CUDA_MEMSET_NODE_PARAMS memset_parameters(const MemsetNode& node) {
    const MemsetOp& op = node.op;
    return {op.address, op.pitch, op.value, op.element_bytes, op.width, op.height};
}

CUDA_MEM_ALLOC_NODE_PARAMS alloc_parameters(const MemAllocNode& node) {
    return {node.properties, node.access.empty() ? nullptr : node.access.data(), node.access.size(),
            node.memory->bytes(), node.memory->address()};
}

NodeWork captured_work(Op op) {
    if (auto* kernel = std::get_if<KernelOp>(&op)) {
        KernelNode node;
        node.function = kernel->function;
        node.kernel = as_library_kernel(kernel->function);
        if (kernel->launch.cooperative) node.attributes[CU_LAUNCH_ATTRIBUTE_COOPERATIVE].cooperative = 1;
        if (kernel->launch.explicit_cluster) {
            const auto& [x, y, z] = kernel->launch.cluster;
            node.attributes[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION].clusterDim = {x, y, z};
        }
        node.op = std::move(*kernel);
        return node;
    }
    if (auto* copy = std::get_if<CopyOp>(&op)) return MemcpyNode{api_copy(*copy)};
    if (auto* memset = std::get_if<MemsetOp>(&op)) return MemsetNode{*memset};
    if (auto* host = std::get_if<HostOp>(&op); host && host->named) return HostNode{host->named, host->data};
    if (auto* value = std::get_if<ValueOp>(&op)) return BatchMemOpNode{{batch_item(*value)}, {*value}};
    if (std::holds_alternative<MarkerOp>(op)) return EmptyNode{};
    if (auto* action = std::get_if<ActionOp>(&op); action && action->allocates) {
        CUmemPoolProps properties{};
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, action->allocates->device().ordinal};
        return MemAllocNode{action->allocates, properties};
    }
    if (auto* action = std::get_if<ActionOp>(&op); action && action->frees) return MemFreeNode{action->frees};
    throw Failure{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
}

Op operation(Context& context, const NodeWork& work) {
    if (const auto* kernel = std::get_if<KernelNode>(&work)) {
        KernelOp op = kernel->op;
        op.launch.cooperative = cooperative(*kernel);
        const auto attribute = kernel->attributes.find(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
        if (attribute != kernel->attributes.end() || op.launch.kernel->explicit_cluster)
            set_cluster(op.launch,
                        cluster_of_node(context, *kernel,
                                        attribute != kernel->attributes.end() ? attribute->second
                                                                              : CUlaunchAttributeValue{}));
        return op;
    }
    if (const auto* copy = std::get_if<MemcpyNode>(&work)) return pitched_copy(context, copy->copy);
    if (const auto* memset = std::get_if<MemsetNode>(&work)) return memset->op;
    if (const auto* host = std::get_if<HostNode>(&work)) {
        return HostOp{[node = *host](CUresult) { node.function(node.data); }, false, host->function,
                      host->data};
    }
    if (const auto* free = std::get_if<MemFreeNode>(&work)) {
        return ActionOp{[memory = free->memory] { memory->end_use(); }};
    }
    if (const auto* batch = std::get_if<BatchMemOpNode>(&work)) {
        // One after the other.
        return SpawnOp{[ops = batch->ops, begun = false](auto& steps) mutable {
            if (std::exchange(begun, true)) return false;
            for (std::size_t i = 0; i < ops.size(); ++i)
                steps.push_back({ops[i], i == 0 ? std::vector<std::size_t>{} : std::vector{i - 1}});
            return true;
        }};
    }
    return MarkerOp{};
}

}  // namespace simcuda::driver
