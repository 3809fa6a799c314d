// The memory of the fake GPU: physical handles with real bytes, an address space they are mapped into, and
// the driver's rules for both. A broken rule is answered with an error and written down.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "shim/device/port.h"

namespace lms::fake {

using device::Address;
using device::Place;

// Host memory that is taken here, for who counts it over several processes; null: nobody does.
inline std::atomic<std::uint64_t>* host_taken = nullptr;

// Not thread-safe; FakePort's lock guards it.
class Memory {
  public:
    Memory(std::uint64_t granularity, std::uint64_t device_bytes, bool maps_host, std::uint64_t seed);

    CUresult reserve(std::uint64_t bytes, Address& address);
    CUresult unreserve(Address address, std::uint64_t bytes);
    // Fresh memory is poisoned, and never twice alike. Device memory is limited, host memory is not.
    CUresult create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle);
    // As the driver has it: the memory stays until its last mapping is gone.
    CUresult release(CUmemGenericAllocationHandle handle);
    // Nothing reaches it before admit(). That and unmap() take several mappings side by side, whole ones.
    CUresult map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle, Place place);
    CUresult admit(Address address, std::uint64_t bytes);
    CUresult unmap(Address address, std::uint64_t bytes);
    // The host may use it as well. No address twice.
    CUresult pin(std::uint64_t bytes, Address& host);
    CUresult unpin(Address host);

    // What running work does: each access is translated when it is made. Pinned memory is out of a kernel's
    // reach, like everything unmapped; bytes read there are garbage, bytes written there are lost.
    enum class Actor { Kernel, Copy };
    void read(Address address, std::uint8_t* bytes, std::uint64_t count, Actor actor = Actor::Kernel);
    void write(Address address, const std::uint8_t* bytes, std::uint64_t count, Actor actor = Actor::Kernel);

    // Device memory that others hold.
    void take_outside(std::uint64_t bytes) { outside_bytes_ = bytes; }
    std::uint64_t device_bytes() const { return device_bytes_; }
    std::uint64_t used_bytes() const { return used_bytes_ + outside_bytes_; }
    std::uint64_t granularity() const { return granularity_; }
    bool maps_host() const { return maps_host_; }

    // Live handles of a place, pinned blocks, and mappings that lie in [begin, end).
    std::size_t handles(Place place) const;
    std::size_t pinned() const { return pinned_; }
    std::size_t mappings(Address begin = 0, Address end = ~Address{0}) const;
    Place place_of(CUmemGenericAllocationHandle handle) const;
    // The place of the memory behind an address, pinned or mapped; false when there is none.
    bool where(Address address, Place& place) const;

    // Writes a broken rule down and returns `status`.
    CUresult broken(std::string rule, CUresult status = CUDA_ERROR_INVALID_VALUE);
    const std::vector<std::string>& violations() const { return violations_; }
    void forgive() { violations_.clear(); }

  private:
    struct Storage {
        Place place;
        std::vector<std::uint8_t> bytes;
    };
    struct Mapping {
        std::uint64_t bytes;
        std::shared_ptr<Storage> storage;
        bool pinned;
        bool admitted;
    };
    using Mappings = std::map<Address, Mapping>;
    // Those that make up the range; none, and a rule is broken, where others or pinned ones do.
    std::vector<Mappings::iterator> whole(Address address, std::uint64_t bytes, const char* call);
    std::shared_ptr<Storage> make(std::uint64_t bytes, Place place);
    bool reserved(Address address, std::uint64_t bytes) const;
    bool sized(std::uint64_t bytes) const { return bytes > 0 && bytes % granularity_ == 0; }
    // The mapping that holds `address`, or null.
    const std::pair<const Address, Mapping>* find(Address address) const;
    // Calls visit(device bytes, offset, count) for each stretch of the range that the actor can reach.
    template <typename Visit>
    void access(Address address, std::uint64_t count, Actor actor, Visit&& visit);

    std::uint64_t granularity_;
    std::uint64_t device_bytes_;
    bool maps_host_;
    std::mt19937_64 random_;
    std::uint64_t used_bytes_ = 0;
    std::uint64_t outside_bytes_ = 0;
    std::size_t pinned_ = 0;
    Address next_reserved_ = Address{1} << 40;
    CUmemGenericAllocationHandle next_handle_ = 1;
    std::map<Address, std::uint64_t> reserved_;
    std::map<CUmemGenericAllocationHandle, std::shared_ptr<Storage>> handles_;
    std::map<Address, Mapping> mappings_;
    std::vector<std::shared_ptr<Storage>> unpinned_;  // keep their addresses
    std::vector<std::string> violations_;
};

}  // namespace lms::fake
