// Fact 3: one address that changes between memory of the device and of the host.
#include <cstring>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

constexpr unsigned kFirst = 11, kSecond = 22;  // seeds of contents
constexpr unsigned kTimes = 64;                // additions of a thread to a counter

struct Work {
    const Card& card;
    const Stream stream;
    const Grid grid;

    explicit Work(const Card& c)
        : card(c),
          grid{static_cast<unsigned>(std::max(c.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1)) * 8,
               256} {}

    void fill(Address address, std::uint64_t bytes, unsigned seed) const {
        launch(card.kernel("fill"), grid, stream, address, static_cast<unsigned>(bytes / 4), seed);
        stream.wait();
    }

    unsigned wrong_words(Address address, std::uint64_t bytes, unsigned seed) const {
        const Pinned wrong(sizeof(unsigned));
        std::memset(wrong.data, 0, sizeof(unsigned));
        launch(card.kernel("compare"), grid, stream, address, static_cast<unsigned>(bytes / 4), seed,
               wrong.address());
        stream.wait();
        return *static_cast<unsigned*>(wrong.data);
    }

    void copy(Address to, Address from, std::uint64_t bytes) const {
        CU(cuMemcpyAsync, to, from, bytes, stream);
        stream.wait();
    }
};

void measure_in_place(const Work& work, const Block& block, const std::string& name, Record& record) {
    const Pinned out(sizeof(unsigned));
    const unsigned count = static_cast<unsigned>(block.bytes / 16);
    Samples reads, writes;
    for (int i = 0; i < 5; ++i) {
        reads.add(gigabytes_per_second(work.stream, block.bytes, [&] {
            launch(work.card.kernel("read_all"), work.grid, work.stream, block.address, count, out.address());
        }));
        writes.add(gigabytes_per_second(work.stream, block.bytes, [&] {
            launch(work.card.kernel("write_all"), work.grid, work.stream, block.address, count, 5u);
        }));
    }
    record.samples(name + "/kernel reads", reads, "GB/s");
    record.samples(name + "/kernel writes", writes, "GB/s");
}

void check_atomics(const Work& work, const Block& block, Record& record) {
    CU(cuMemsetD8_v2, block.address, 0, 16);
    launch(work.card.kernel("count_up"), work.grid, work.stream, block.address, block.address + 8, kTimes);
    work.stream.wait();
    const Pinned seen(16);
    work.copy(seen.address(), block.address, 16);
    const std::uint64_t expected = std::uint64_t{work.grid.blocks} * work.grid.threads * kTimes;
    record.answer("atomics in place are right, 32 bits", *static_cast<std::uint32_t*>(seen.data) == expected);
    record.answer("atomics in place are right, 64 bits",
                  static_cast<std::uint64_t*>(seen.data)[1] == expected);
}

void follow(const Card& card, CUmemLocation host, Record& record) {
    const Work work(card);
    const std::uint64_t bytes = card.sized(64 * kMiB, 8);
    const CUmemLocation device = card.location(Place::Device);
    Block block(card, bytes, device);
    const Block alias(card, bytes, host);  // the host memory at an address of its own
    measure_in_place(work, block, "on the device", record);

    work.fill(block.address, bytes, kFirst);
    work.copy(alias.address, block.address, bytes);
    record.number("to the host/remap", microseconds([&] { block.remap(card, alias.handle, host); }), "us");
    record.number("to the host/wrong words", work.wrong_words(block.address, bytes, kFirst), "words");

    work.fill(block.address, bytes, kSecond);
    record.number("written in place/wrong words by the alias",
                  work.wrong_words(alias.address, bytes, kSecond), "words");
    std::vector<std::uint32_t> on_cpu(bytes / 4), by_copy(bytes / 4);
    std::memcpy(on_cpu.data(), reinterpret_cast<const void*>(alias.address), bytes);
    CU(cuMemcpyDtoH_v2, by_copy.data(), block.address, bytes);
    record.answer("the CPU and a copy read the same", on_cpu == by_copy);
    measure_in_place(work, block, "on the host", record);
    check_atomics(work, block, record);

    work.fill(block.address, bytes, kFirst);
    const Block back(card, bytes, device);
    work.copy(back.address, alias.address, bytes);
    record.number("to the device/remap", microseconds([&] { block.remap(card, back.handle, device); }), "us");
    record.number("to the device/wrong words", work.wrong_words(block.address, bytes, kFirst), "words");
}

void follow(const Card& card, CUmemLocationType type, Record& record) {
    for (const CUmemLocation location : card.host_locations()) {
        if (location.type == type) return follow(card, location, record);
    }
    throw Failure{CUDA_ERROR_NOT_SUPPORTED, "the device's attribute"};
}

}  // namespace

void host_mapping(const Card& card, Record& record) {
    follow(card, CU_MEM_LOCATION_TYPE_HOST, record);
}

void host_numa_mapping(const Card& card, Record& record) {
    follow(card, CU_MEM_LOCATION_TYPE_HOST_NUMA, record);
}

}  // namespace facts
