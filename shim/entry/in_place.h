// Copies that use evicted memory in its host copy, where its address does not lead there: cut where one host
// copy ends and something else begins, each part at the addresses where its bytes are. They lie within their
// buffers (ranges.h): of a copy done in parts the driver would see too late that they do not.
#pragma once

#include <cstdint>

#include "shim/session/submit.h"

namespace lms::entry {

// Where the byte of an address is, and how many from there on are in one piece.
struct Where {
    engine::Address address;
    std::uint64_t bytes;
    bool moved;  // not at the address asked for
};
Where where_is(engine::Address address, session::HostCopies copies);

// Host copies are about to be read or written by a copy that the host waits for: what was submitted before it
// comes first. Nobody promises that of copies from host to host.
CUresult await_earlier(session::HostCopies copies, CUstream stream);

// Copies by `copy(to, from, bytes)`.
CUresult copy_in_place(engine::Address to, engine::Address from, std::uint64_t bytes,
                       session::HostCopies copies,
                       util::FunctionRef<CUresult(engine::Address, engine::Address, std::uint64_t)> copy);

}  // namespace lms::entry
