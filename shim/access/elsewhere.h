// Memory that is known not to be managed: the driver's own allocations, what it maps, variables of modules,
// the host's memory, memory that graphs allocate.
//
// The driver is asked once for each range. What it said is dropped when the program frees memory of the
// driver's or of the host's, or unloads code.
#pragma once

#include <cstdint>

#include "shim/engine/chunk.h"

namespace lms::access {

// Thread-safe, for the process.

// Whether an address that is in no buffer leads to other memory, by what the driver says, or is the host's to
// read.
bool is_elsewhere(engine::Address address);
// Whether it has said so before, and what it said is kept.
bool is_known_elsewhere(engine::Address address);

// Memory of the driver's was freed, or some of the host's that the GPU could reach.
void elsewhere_freed();
// A graph has this memory, of which the driver may not know before the graph is launched. That is kept.
void note_graph_memory(engine::Address address, std::uint64_t bytes);

}  // namespace lms::access
