// Fact 10: which asynchronous copies block the calling thread.
#include <memory>

#include "tools/gpu_facts/facts.h"
#include "tools/gpu_facts/running_kernel.h"

namespace facts {
namespace {

struct Operand {
    const char* name;
    Address from, to;  // memory to read and other memory to write
};

// With a kernel before it in the stream that ends only when it is told to, or after its limit.
void measure(const Card& card, const Operand& from, const Operand& to, std::uint64_t bytes, Record& record) {
    constexpr unsigned long long kLimitMs = 100;
    const Stream stream;
    const RunningKernel kernel(card, stream, kLimitMs);
    const double us = microseconds([&] { CU(cuMemcpyAsync, to.to, from.from, bytes, stream); });
    const std::string name = std::string(from.name) + " to " + to.name;
    record.answer(name + "/returns while the stream is busy", stream.busy() && us < 1e3 * kLimitMs / 2);
    record.number(name + "/time of the call", us, "us");
}

}  // namespace

void async_copies(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(16 * kMiB, 16);
    const Block device(card, 2 * bytes, Place::Device);
    const Pinned pinned(2 * bytes);
    std::vector<char> pageable(2 * bytes, 1);
    std::vector<Operand> operands = {{"device", device.address, device.address + bytes},
                                     {"pinned", pinned.address(), pinned.address() + bytes},
                                     {"pageable", reinterpret_cast<Address>(pageable.data()),
                                      reinterpret_cast<Address>(pageable.data() + bytes)}};
    std::unique_ptr<Block> host;
    if (card.host_location().type != CU_MEM_LOCATION_TYPE_INVALID) {
        host = std::make_unique<Block>(card, 2 * bytes, Place::Host);
        operands.push_back({"host behind addresses", host->address, host->address + bytes});
    }
    for (const Operand& from : operands) {
        for (const Operand& to : operands) measure(card, from, to, bytes, record);
    }
}

}  // namespace facts
