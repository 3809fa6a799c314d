// Memory that the program creates by handles and maps itself. A handle of ordinary properties stands for a
// buffer of a session, and what the program does with it is done to that; all else is the driver's, and so is
// from then on a handle that is shared, or used as a session's buffer cannot be.
#pragma once

#include <functional>
#include <optional>

#include "shim/device/cuda_api.h"
#include "shim/program/address_book.h"
#include "shim/session/sessions.h"

namespace lms::session {

// Thread-safe, for the process. Answers are what the program is to get.

// The session that can serve handles of these properties and that size; null: they are the driver's.
Session* session_for(const CUmemAllocationProp& properties, std::uint64_t bytes);
// The driver's error for a handle of such properties, of any size.
CUresult try_properties(const Session& session, const CUmemAllocationProp& properties);

CUresult create_handle(Session& session, std::uint64_t bytes, const CUmemAllocationProp& properties,
                       CUmemGenericAllocationHandle& handle);

// Whether a handle was given out here.
bool is_program_handle(CUmemGenericAllocationHandle handle);
// The calls below take such handles alone.
// `gone`: nothing keeps its memory any more.
CUresult release_handle(CUmemGenericAllocationHandle handle, bool& gone);
CUresult properties_of(CUmemGenericAllocationHandle handle, CUmemAllocationProp& properties);
// `before`: the mapping that what the host wrote into this memory is known by, 0 if that is the handle
// itself.
CUresult map_handle(engine::Address address, std::uint64_t bytes, std::uint64_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags, engine::Address& before);
// Calls `call(handle of the driver's)`, for what the driver alone can do with one. If it succeeds, the memory
// is the driver's from then on, or `undo(the same)` is called: and all of that again, where work was found to
// use the memory meanwhile. Waits for such work ten seconds at most, without keeping others from the handle.
using WithHandle = std::function<CUresult(CUmemGenericAllocationHandle)>;
CUresult with_drivers_handle(CUmemGenericAllocationHandle handle, const WithHandle& call,
                             const std::function<void(CUmemGenericAllocationHandle)>& undo);
// The same for memory that is mapped: all of a range becomes the driver's.
CUresult give_to_driver(engine::Address address, std::uint64_t bytes);

// Whether work of the current GPU may do anything with what the program has mapped in a range. Where the
// host's copy of other memory were used, nobody would see what the driver refuses.
bool within_reach(engine::Address address, std::uint64_t bytes);
// Whether a range holds memory of handles given out here.
bool has_program_memory(engine::Address address, std::uint64_t bytes);
// The calls below take such ranges alone. `gone` is called with each mapping that is no more: whether it is
// what the host's writes were known by, and whether its memory lives on.
using ViewGone = std::function<void(const program::View&, bool known_by, bool lives)>;
CUresult unmap_range(engine::Address address, std::uint64_t bytes, const ViewGone& gone);
CUresult set_access(engine::Address address, std::uint64_t bytes, std::span<const CUmemAccessDesc> access);
// Nothing where the memory at `address` is not of such a handle.
std::optional<CUmemGenericAllocationHandle> retain_handle(engine::Address address);

// Managed memory that the program has mapped at `address`, and the reservation that lies in.
struct ViewAt {
    program::View view;
    program::AddressRange reservation;
    CUmemAllocationProp properties;
};
std::optional<ViewAt> managed_view_at(engine::Address address);

}  // namespace lms::session
