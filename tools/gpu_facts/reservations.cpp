// Fact 15: what reserving a great many addresses costs.
#include <fmt/format.h>

#include "tools/gpu_facts/facts.h"
#include "tools/gpu_facts/process_accounts.h"

namespace facts {

void reservations(const Card&, Record& record) {
    for (std::uint64_t tib = 1; tib <= 16; tib *= 2) {
        const std::uint64_t bytes = tib << 40;
        const std::string name = fmt::format("{} TiB", tib);
        const std::uint64_t before = line_bytes("/proc/self/status", "VmPTE");
        Address address = 0;
        CUresult status = CUDA_SUCCESS;
        const double us =
            microseconds([&] { status = driver().cuMemAddressReserve(&address, bytes, 0, 0, 0); });
        record.text(name + "/answer", name_of(status));
        if (status != CUDA_SUCCESS) continue;
        record.number(name + "/reserve", us, "us");
        const std::uint64_t after = line_bytes("/proc/self/status", "VmPTE");
        record.number(name + "/page tables of the process", static_cast<double>(after - before), "bytes");
        record.number(name + "/free", microseconds([&] { CU(cuMemAddressFree, address, bytes); }), "us");
    }
}

}  // namespace facts
