// Pointer tables: memory into which the host has written managed addresses. Work that is given such memory
// reaches what the addresses name.
//
// Every copy and set that the program asks for is noted here, at the call, also while nothing moves. What
// comes from the host is searched for addresses: all of it up to 1 MiB; of more, 4 KiB in every 64 KiB, and
// all of it if there is one among these. What kernels write is not seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shim/access/pointer_words.h"
#include "shim/access/strided_region.h"

namespace lms::session {
struct WorkingSet;
}

namespace lms::access {

// Thread-safe, for the process. Sessions' locks are taken inside.

// What holds for the words at the destination of a copy that was there before.
enum class Effect {
    Replaces,
    Adds,  // they may still be there: the copy is part of a graph and its place in time is not known
};

// Whether any tables, or variables that may be such, are known. Copies and sets of what is no table need not
// be noted before there are.
inline constinit std::atomic<bool> table_words_seen{false};
inline constinit std::atomic<bool> table_variables_seen{false};
inline bool any_tables() {
    return table_words_seen.load() || table_variables_seen.load();
}

// Whether there is memory that addresses may lead to: managed, or other device memory, in which addresses of
// managed memory may come yet.
bool may_be_tables();

// The address by which the CPU reads what lies there; none where the driver says that it is not the host's,
// or the CPU cannot read it.
std::optional<engine::Address> host_address_of(engine::Address address);
// Whether there is one.
bool is_host_memory(engine::Address address);

// Addresses are unified: what the program calls the host's may be the GPU's, and page-locked memory the other
// way round. Host memory is read.

// Copied from what it calls host memory. Of what is not where the GPU's is known to be the driver is not
// asked.
void note_upload(const StridedRegion& to, const StridedRegion& from, Effect effect = Effect::Replaces);
// The same of one word of 8 bytes.
void note_word(engine::Address at, std::uint64_t value, Effect effect = Effect::Replaces);
// Copied within managed memory.
void note_copy(const StridedRegion& to, const StridedRegion& from, Effect effect = Effect::Replaces);
// `from` is what the driver says it is.
void note_transfer(const StridedRegion& to, const StridedRegion& from, Effect effect = Effect::Replaces);
// From a side of that type; arrays hold no addresses.
void note_typed(const StridedRegion& to, const StridedRegion& from, CUmemorytype from_type,
                Effect effect = Effect::Replaces);
// Overwritten with what holds no addresses.
void note_set(const StridedRegion& to);

// The program has got memory that is not managed: other tables may point to tables there.
void note_unmanaged(engine::Address address, std::uint64_t bytes);
// It frees managed memory, or unmaps what it had mapped.
void note_freed(engine::Address address, std::uint64_t bytes);
// Memory of a handle that the program maps itself: what the host wrote by a mapping that is no more is known
// by the handle, until that is mapped again, for others may take the mapping's address before. A handle is
// `given` when it is new: of one before it with that number, which is gone, nothing is known any more.
void note_handle_unmapped(CUmemGenericAllocationHandle handle, std::uint64_t offset, engine::Address address,
                          std::uint64_t bytes);
void note_handle_mapped(CUmemGenericAllocationHandle handle, std::uint64_t offset, engine::Address address,
                        std::uint64_t bytes);
void note_handle_given(CUmemGenericAllocationHandle handle);

// It has asked where a variable of a module, of a library or of both (`owners`, not null) is.
void note_variable(engine::Address address, std::uint64_t bytes, std::span<const void* const> owners);

// What is known of memory that is not managed.
struct KnownRegion {
    engine::Address address;
    std::uint64_t bytes;
    std::vector<const void*> owners;  // of a variable
    bool copied_into;
    std::vector<PointerWord> words;
};
// The module or library is about to be unloaded, or the memory at `address`, which is not managed, freed:
// what was known. It is forgotten before, for others may have the address after.
std::vector<KnownRegion> forget_variables(const void* owner);
std::optional<KnownRegion> forget_memory(engine::Address address);
// It has stayed.
void region_stays(const KnownRegion& region);

// Arguments in this range may be tables although they are not managed.
session::Bounds table_bounds();

// Whether managed memory is among its addresses.
bool names_managed(const session::WorkingSet& reach);
// Whether one of these modules and libraries has variables that may be tables.
bool any_has_variables(std::span<const void* const> owners);
// Adds to `reach` what it reaches through tables: through those at its addresses, and through the variables
// of its owners.
void follow_tables(session::WorkingSet& reach);

}  // namespace lms::access
