// Node parameters: between the structures of the API, the work of a node, and operations of a stream.
#pragma once

#include "tools/simcuda/driver/graph/graph.h"

namespace simcuda::driver {

class Context;

// From the API. Check what can be checked without running it; throw Failure as the calls that take them do.
KernelNode kernel_work(Context& context, const CUDA_KERNEL_NODE_PARAMS_v2& parameters);
MemcpyNode memcpy_work(Context& context, const CUDA_MEMCPY3D& copy);
MemsetNode memset_work(Context& context, const CUDA_MEMSET_NODE_PARAMS& parameters);
HostNode host_work(const CUDA_HOST_NODE_PARAMS& parameters);
MemAllocNode alloc_work(const CUDA_MEM_ALLOC_NODE_PARAMS& parameters);
MemFreeNode free_work(CUdeviceptr address);
EventRecordNode record_work(CUevent event);
EventWaitNode wait_work(CUevent event);
ConditionalNode conditional_work(const CUDA_CONDITIONAL_NODE_PARAMS& parameters);
BatchMemOpNode batch_work(const Context& context, const CUDA_BATCH_MEM_OP_NODE_PARAMS& parameters);
// Of any type; fills in what `parameters` has for results.
NodeWork node_work(Context& context, CUgraphNodeParams& parameters);

// Device, array or host: what the API calls the memory there.
CUmemorytype memory_type(const CopyEnd& end);

// To the API. Pointers in the result stay valid until the node changes.
CUDA_KERNEL_NODE_PARAMS_v2 kernel_parameters(KernelNode& node);
CUDA_MEMSET_NODE_PARAMS memset_parameters(const MemsetNode& node);
CUDA_MEM_ALLOC_NODE_PARAMS alloc_parameters(const MemAllocNode& node);

// What a stream was given, as a node. Throws Failure with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED for what
// cannot be captured.
NodeWork captured_work(Op op);

// What a node does when it runs; event and child nodes have no operation of their own. Looks up what lies at
// the addresses of copies now. Throws Failure.
Op operation(Context& context, const NodeWork& work);

}  // namespace simcuda::driver
