// The facts and the probes that find them out. A probe runs in a process of its own: some of them end in a
// fault after which a context does nothing more.
#pragma once

#include <span>
#include <string_view>

#include "tools/gpu_facts/card.h"
#include "tools/gpu_facts/record.h"

namespace facts {

struct Probe {
    std::string_view name;  // of the part; empty where the fact has one
    // Throws Failure; what was recorded before it is kept.
    void (*run)(const Card& card, Record& record);
};

struct Fact {
    int number;  // in the list of what had to be measured first
    std::string_view name;
    std::string_view question;
    std::string_view how;
    std::span<const Probe> probes;
};

std::span<const Fact> all_facts();

// A probe that takes longer is stopped; so is one that runs when all together have taken as long as they may.
inline constexpr int kProbeSeconds = 25, kAllSeconds = 170;

// One file each.
void vmm_costs(const Card&, Record&);
void remap_other_memory(const Card&, Record&);
void unmap_used_memory(const Card&, Record&);
void remap_used_memory(const Card&, Record&);
void host_mapping(const Card&, Record&);
void host_numa_mapping(const Card&, Record&);
void lookup_identity(const Card&, Record&);
void tensor_map(const Card&, Record&);
void static_runtime_calls(const Card&, Record&);
void shared_runtime_calls(const Card&, Record&);
void pointer_attributes(const Card&, Record&);
void handle_limits(const Card&, Record&);
void mapping_limits(const Card&, Record&);
void copy_bandwidth(const Card&, Record&);
void pinning_speed(const Card&, Record&);
void async_copies(const Card&, Record&);
void graph_copy_same_memory(const Card&, Record&);
void graph_copy_other_memory(const Card&, Record&);
void graph_copy_host_memory(const Card&, Record&);
void event_cost(const Card&, Record&);
void several_contexts(const Card&, Record&);
void host_accounts(const Card&, Record&);
void reservations(const Card&, Record&);

}  // namespace facts
