// Fact 14: which account host memory of each kind is charged to.
#include <cstring>

#include "tools/gpu_facts/facts.h"
#include "tools/gpu_facts/process_accounts.h"

namespace facts {
namespace {

struct Accounts {
    double cgroup = static_cast<double>(cgroup_memory().bytes);
    double resident = static_cast<double>(line_bytes("/proc/self/status", "VmRSS"));
    double locked = static_cast<double>(line_bytes("/proc/self/status", "VmLck"));
    double pinned = static_cast<double>(line_bytes("/proc/self/status", "VmPin"));
    double available = static_cast<double>(line_bytes("/proc/meminfo", "MemAvailable"));
};

void record_growth(const Accounts& before, const std::string& name, Record& record) {
    const Accounts after;
    const auto grown = [&](const char* account, double from, double to) {
        record.number(name + "/" + account, (to - from) / static_cast<double>(kMiB), "MiB");
    };
    grown("cgroup charged", before.cgroup, after.cgroup);
    grown("process resident", before.resident, after.resident);
    grown("process locked", before.locked, after.locked);
    grown("process pinned", before.pinned, after.pinned);
    grown("machine's available taken", after.available, before.available);
}

}  // namespace

void host_accounts(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(256 * kMiB, 4);
    const std::string cgroup = cgroup_memory().path;
    record.text("cgroup", cgroup.empty() ? "none that can be read" : cgroup);
    record.number("memory taken", static_cast<double>(bytes) / static_cast<double>(kMiB), "MiB");
    {
        const Accounts before;
        const Pinned pinned(bytes);
        std::memset(pinned.data, 1, bytes);
        record_growth(before, "pinned by the driver", record);
    }
    if (card.host_location().type == CU_MEM_LOCATION_TYPE_INVALID) return;
    const Accounts before;
    const CUmemGenericAllocationHandle handle = create(bytes, card.location(Place::Host));
    record_growth(before, "host memory behind addresses, created", record);
    const Address address = reserve(bytes);
    CU(cuMemMap, address, bytes, 0, handle, 0);
    grant(card, address, bytes, card.location(Place::Host));
    std::memset(reinterpret_cast<void*>(address), 1, bytes);
    record_growth(before, "host memory behind addresses, mapped and touched", record);
    CU(cuMemUnmap, address, bytes);
    CU(cuMemRelease, handle);
    record_growth(before, "host memory behind addresses, released", record);
    CU(cuMemAddressFree, address, bytes);
}

}  // namespace facts
