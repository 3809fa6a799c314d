// Fact 9: bandwidth of copies, and how fast host memory is pinned.
#include <sys/mman.h>

#include <algorithm>
#include <thread>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

constexpr int kRounds = 7;

// One direction after the other, then both at once, the memory copied in pieces.
void measure_copies(const Block& device, Address host, std::uint64_t piece, const std::string& name,
                    Record& record) {
    const Stream in, out;
    const std::uint64_t half = device.bytes / 2;  // one for each direction
    const auto copy_in = [&] {
        for (std::uint64_t at = 0; at < half; at += piece)
            CU(cuMemcpyAsync, device.address + at, host + at, std::min(piece, half - at), in);
    };
    const auto copy_out = [&] {
        for (std::uint64_t at = half; at < 2 * half; at += piece)
            CU(cuMemcpyAsync, host + at, device.address + at, std::min(piece, 2 * half - at), out);
    };
    Samples ins, outs, both;
    for (int i = 0; i < kRounds; ++i) {
        ins.add(gigabytes_per_second(in, half, copy_in));
        outs.add(gigabytes_per_second(out, half, copy_out));
        const double us = microseconds([&] {
            copy_in();
            copy_out();
            in.wait();
            out.wait();
        });
        both.add(static_cast<double>(half) / (1e3 * us));
    }
    record.samples(name + "/to the device", ins, "GB/s");
    record.samples(name + "/to the host", outs, "GB/s");
    record.samples(name + "/each way, both at once", both, "GB/s");
}

struct Pages {
    explicit Pages(std::uint64_t size) : bytes(size) {
        data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) throw Failure{CUDA_ERROR_OUT_OF_MEMORY, "mmap"};
    }
    ~Pages() { munmap(data, bytes); }

    // Every page written, by several threads.
    void touch() {
        const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
        const std::uint64_t share = (bytes / threads + 4095) / 4096 * 4096;
        std::vector<std::thread> running;
        for (std::uint64_t begin = 0; begin < bytes; begin += share) {
            running.emplace_back([this, begin, end = std::min(begin + share, bytes)] {
                for (std::uint64_t at = begin; at < end; at += 4096)
                    static_cast<volatile char*>(data)[at] = 1;
            });
        }
        for (std::thread& thread : running) thread.join();
    }

    const std::uint64_t bytes;
    void* data;
};

double rate(std::uint64_t bytes, double us) {
    return static_cast<double>(bytes) / (1e3 * us);
}

}  // namespace

void copy_bandwidth(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(512 * kMiB, 8);
    const Block device(card, bytes, Place::Device);
    const Pinned pinned(bytes);
    for (const std::uint64_t piece : {2 * kMiB, 8 * kMiB, 32 * kMiB, 256 * kMiB}) {
        if (piece > bytes / 2) break;
        measure_copies(device, pinned.address(), piece, "pinned, pieces of " + mib_text(piece), record);
    }
    if (card.host_location().type == CU_MEM_LOCATION_TYPE_INVALID) return;
    const Block host(card, bytes, Place::Host);
    const std::uint64_t piece = std::min(32 * kMiB, bytes / 2);
    measure_copies(device, host.address, piece, "host memory behind addresses, pieces of " + mib_text(piece),
                   record);
}

void pinning_speed(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(kGiB, 4);
    Samples allocated, freed, touched, registered, unregistered, mapped;
    for (int i = 0; i < 3; ++i) {
        void* data = nullptr;
        allocated.add(
            rate(bytes, microseconds([&] { CU(cuMemHostAlloc, &data, bytes, CU_MEMHOSTALLOC_PORTABLE); })));
        freed.add(rate(bytes, microseconds([&] { CU(cuMemFreeHost, data); })));
        Pages pages(bytes);
        touched.add(rate(bytes, microseconds([&] { pages.touch(); })));
        registered.add(rate(bytes, microseconds([&] {
                                CU(cuMemHostRegister_v2, pages.data, bytes, CU_MEMHOSTREGISTER_PORTABLE);
                            })));
        unregistered.add(rate(bytes, microseconds([&] { CU(cuMemHostUnregister, pages.data); })));
    }
    record.samples("driver's allocation", allocated, "GB/s");
    record.samples("driver's allocation freed", freed, "GB/s");
    record.samples("touched by threads", touched, "GB/s");
    record.samples("registered after that", registered, "GB/s");
    record.samples("unregistered", unregistered, "GB/s");
    if (card.host_location().type == CU_MEM_LOCATION_TYPE_INVALID) return;
    const std::uint64_t piece = std::min(bytes, 32 * kMiB);
    for (std::uint64_t at = 0; at + piece <= bytes; at += piece) {
        mapped.add(rate(piece, microseconds([&] { const Block block(card, piece, Place::Host); })));
    }
    record.samples("host memory behind addresses made, mapped and given back, " + mib_text(piece), mapped,
                   "GB/s");
}

}  // namespace facts
