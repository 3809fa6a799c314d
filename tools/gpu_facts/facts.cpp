#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

constexpr Probe kVmmCosts[] = {{"", vmm_costs}};
constexpr Probe kBesideKernel[] = {{"other memory", remap_other_memory},
                                   {"its memory unmapped", unmap_used_memory},
                                   {"its memory remapped to the host", remap_used_memory}};
constexpr Probe kHostMapping[] = {{"HOST", host_mapping}, {"HOST_NUMA", host_numa_mapping}};
constexpr Probe kLookups[] = {{"", lookup_identity}};
constexpr Probe kTensorMap[] = {{"", tensor_map}};
constexpr Probe kRuntime[] = {{"static", static_runtime_calls}, {"shared", shared_runtime_calls}};
constexpr Probe kPointers[] = {{"", pointer_attributes}};
constexpr Probe kLimits[] = {{"handles", handle_limits}, {"mappings", mapping_limits}};
constexpr Probe kCopies[] = {{"copies", copy_bandwidth}, {"pinning", pinning_speed}};
constexpr Probe kAsyncCopies[] = {{"", async_copies}};
constexpr Probe kGraphCopies[] = {{"same memory", graph_copy_same_memory},
                                  {"other device memory", graph_copy_other_memory},
                                  {"host memory", graph_copy_host_memory}};
constexpr Probe kEvents[] = {{"", event_cost}};
constexpr Probe kContexts[] = {{"", several_contexts}};
constexpr Probe kAccounts[] = {{"", host_accounts}};
constexpr Probe kReservations[] = {{"", reservations}};

constexpr Fact kFacts[] = {
    {1, "vmm-costs", "What do the calls of virtual memory management cost?",
     "time of each call on the host; handles made for it and used again; one grant of access over 8 mappings",
     kVmmCosts},
    {2, "remap-beside-kernel",
     "Does a remap beside a running kernel stall it, fault, or neither? Does an unmap drain the device?",
     "a kernel adds to memory round after round while the host maps and unmaps other memory, then its own",
     kBesideKernel},
    {3, "host-mapping",
     "Can one address change between memory of the device and of the host, how fast is it in place, are "
     "atomics right?",
     "contents followed through the change by kernels and the CPU; bandwidth of kernels by events; counters "
     "added to by every thread",
     kHostMapping},
    {4, "lookup-identity", "Is the pointer of dlsym the pointer of cuGetProcAddress?",
     "every row of shim/entry_points.def, by its base name, version and stream flag", kLookups},
    {5, "tensor-map", "Is word 0 of a tensor map the address?", "maps of two addresses compared word by word",
     kTensorMap},
    {6, "runtime-calls", "What does the runtime pass to cuLibraryLoadData, and which launch call arrives?",
     "a small runtime program under a logger that stands in front of the driver", kRuntime},
    {7, "pointer-attributes", "What does the driver say of a pointer in each state?",
     "every attribute, in every state of an address", kPointers},
    {8, "limits", "How many handles and mappings may there be?",
     "made until one is refused, a stated count or 5 s", kLimits},
    {9, "copy-bandwidth", "How fast are copies one way and both ways, and how fast is memory pinned?",
     "copies timed by events, both ways by the clock; pinned by the driver's allocation, and touched by "
     "threads first, then registered",
     kCopies},
    {10, "async-copies",
     "Does an asynchronous copy to or from memory on the host behind device addresses block?",
     "time of the call while a kernel before it in the stream still runs, and whether that kernel still runs "
     "after it",
     kAsyncCopies},
    {11, "graph-copies", "Does a graph's copy survive a remap of its operands?",
     "an instantiated copy launched after its destination was mapped again, to other memory, to the host",
     kGraphCopies},
    {12, "event-cost", "What does recording an event per launch cost?",
     "empty kernels with and without, host time and until all are done", kEvents},
    {13, "contexts", "Are mappings seen from several contexts?",
     "mapped and granted in one context, used by kernels of another", kContexts},
    {14, "accounts", "Which account is memory of the host behind device addresses charged to?",
     "cgroup, process and machine before and after, every page touched", kAccounts},
    {15, "reservations", "What does reserving 1 to 16 TiB of addresses cost?",
     "time of the call; growth of the process's page tables", kReservations},
};

}  // namespace

std::span<const Fact> all_facts() {
    return kFacts;
}

}  // namespace facts
