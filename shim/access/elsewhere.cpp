#include "shim/access/elsewhere.h"

#include <atomic>
#include <iterator>
#include <map>
#include <optional>

#include "shim/device/driver_table.h"
#include "shim/program/address_book.h"
#include "shim/program/memory_changes.h"
#include "shim/session/sessions.h"
#include "shim/util/mutex.h"
#include "shim/util/readable.h"

namespace lms::access {

namespace {

using engine::Address;

// By their begins; they do not overlap in what they say, so one that is there first may stay.
class Ranges {
  public:
    bool hold(Address address) const {
        auto it = ends_.upper_bound(address);
        return it != ends_.begin() && address < std::prev(it)->second;
    }
    void add(Address begin, Address end) { ends_[begin] = end; }
    void clear() { ends_.clear(); }

  private:
    std::map<Address, Address> ends_;
};

// Never destroyed: other libraries' exit handlers launch kernels too.
struct Registry {
    util::SharedMutex mutex{util::LockOrder::Table};
    Ranges told LMS_GUARDED_BY(mutex);  // by the driver
    Ranges of_graphs LMS_GUARDED_BY(mutex);
    std::uint64_t frees LMS_GUARDED_BY(mutex) = 0;
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

bool ask(void* answer, CUpointer_attribute what, Address at) {
    return device::driver().cuPointerGetAttribute(answer, what, at) == CUDA_SUCCESS;
}

bool is_reserved(Address address) {
    const util::SharedLock lock(program::program_addresses().mutex);
    return program::program_addresses().book.reservation_of(address).has_value();
}

// What the driver has in one piece around an address. Of what the program maps it tells the reservation.
std::optional<program::AddressRange> range_at(Address address) {
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    if (is_reserved(address) || !ask(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) ||
        !ask(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) || address - begin >= bytes)
        return std::nullopt;
    return program::AddressRange{begin, begin + bytes};
}

}  // namespace

bool is_known_elsewhere(Address address) {
    const util::SharedLock lock(registry().mutex);
    return registry().told.hold(address) || registry().of_graphs.hold(address);
}

bool is_elsewhere(Address address) {
    const std::uint64_t frees = [] {
        const util::SharedLock lock(registry().mutex);
        return registry().frees;
    }();
    if (is_known_elsewhere(address)) return true;
    // The shim's own: no buffer's, or the alias of a block.
    for (const session::Session* session : session::sessions()) {
        if (session->reserved(address)) return false;
    }
    unsigned type = 0;
    if (!ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)) return util::is_readable(address);
    if (const auto range = range_at(address)) {
        const util::Lock lock(registry().mutex);
        if (registry().frees == frees) registry().told.add(range->begin, range->end);
    }
    return true;
}

void elsewhere_freed() {
    const util::Lock lock(registry().mutex);
    registry().told.clear();
    ++registry().frees;
    ++program::memory_changes;
}

void note_graph_memory(Address address, std::uint64_t bytes) {
    const util::Lock lock(registry().mutex);
    registry().of_graphs.add(address, address + bytes);
}

}  // namespace lms::access
