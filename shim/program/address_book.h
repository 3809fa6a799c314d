// The addresses that the program reserves and maps itself: what is mapped where, and whose memory it is.
// Pure.
//
// A view is a range at which the program has mapped a handle. It leads to the driver's memory or to managed
// memory; then `home` is where the session keeps the buffer that stands for the handle (engine/arena.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "shim/device/cuda_api.h"
#include "shim/engine/chunk.h"
#include "shim/program/memory_changes.h"
#include "shim/util/mutex.h"

namespace lms::program {

using Access = std::vector<CUmemAccessDesc>;  // one for each location that was named

struct View {
    engine::Address address = 0;
    std::uint64_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;   // as the program has it; 0: not known here
    CUdevice device = 0;                       // of managed memory
    engine::Address home = 0;                  // 0: the driver's
    std::uint64_t id = 0;                      // of managed views, ever
    Access access;                             // of managed memory
    CUmemGenericAllocationHandle drivers = 0;  // its handle, where `handle` is 0
    std::uint64_t offset = 0;                  // into the handle

    engine::Address end() const { return address + bytes; }
    bool is_managed() const { return home != 0; }
    CUmemAccess_flags access_of(CUdevice device) const;
};

// What is set of `access` is set in `all`.
void set(Access& all, const CUmemAccessDesc& access);

struct AddressRange {
    engine::Address begin = 0;
    engine::Address end = 0;
};

class AddressBook {
  public:
    // `asked`: where the program wanted them, 0 if it did not say. Where it wanted and got them right behind
    // others, or right before, the two go on with one another.
    void reserve(engine::Address address, std::uint64_t bytes, engine::Address asked);
    // How many bytes of addresses that were; 0: none are reserved there.
    std::uint64_t unreserve(engine::Address address);
    // The driver has kept them.
    void reserve_again(engine::Address address, std::uint64_t bytes) {
        ++memory_changes;
        reserved_[address] = bytes;
    }
    // The reservation that holds all of a range.
    std::optional<AddressRange> reservation_of(engine::Address address, std::uint64_t bytes = 1) const;

    void add(const View& view) {
        ++memory_changes;
        views_[view.address] = view;
    }
    void remove(engine::Address address) {
        ++memory_changes;
        views_.erase(address);
    }
    // Of the view that begins at `address`, to change it.
    View& at(engine::Address address) {
        ++memory_changes;
        return views_.at(address);
    }
    void each(const std::function<void(View&)>& visit);

    const View* find(engine::Address address) const;  // that holds it
    // Those that touch a range, in order.
    std::vector<View> in(engine::Address address, std::uint64_t bytes) const;
    // Those that make up exactly a range, whole; none where there are none that do.
    std::vector<View> whole(engine::Address address, std::uint64_t bytes) const;
    // Visits the views without a gap around `address`: what a pointer there may mean, for an array may lie on
    // many handles, and on reservations that go on with one another. Where `address` has none, around one
    // that is within `near`.
    void each_of_run(engine::Address address, std::uint64_t near,
                     const std::function<void(const View&)>& visit) const;
    AddressRange run_at(engine::Address address, std::uint64_t near) const;  // what these make up

  private:
    bool ends_at(engine::Address address) const;  // a reservation
    bool divides(engine::Address address) const;  // one that does not go on with the one before

    std::map<engine::Address, std::uint64_t> reserved_;  // address -> bytes
    std::set<engine::Address> joints_;                   // where one goes on with the one before
    std::map<engine::Address, View> views_;
};

// The process's. A leaf lock guards it: shared to look, alone to change.
struct ProgramAddresses {
    util::SharedMutex mutex{util::LockOrder::Table};
    AddressBook book LMS_GUARDED_BY(mutex);
};
ProgramAddresses& program_addresses();
// Whether any managed memory has ever been mapped by the program.
inline constinit std::atomic<bool> managed_views{false};

}  // namespace lms::program
