// Fact 2: mapping and unmapping beside a running kernel.
#include <thread>

#include "tools/gpu_facts/facts.h"
#include "tools/gpu_facts/running_kernel.h"

namespace facts {
namespace {

constexpr unsigned long long kLimitMs = 400;
constexpr auto kWatched = std::chrono::milliseconds(150);
constexpr std::uint64_t kWords = 256 << 10;  // bytes that the kernel adds to

void zero(Address address, std::uint64_t bytes) {
    CU(cuMemsetD8_v2, address, 0, bytes);
    CU(cuCtxSynchronize);
}

// How the stream's work ended, as the program would see it.
std::string outcome(const Stream& stream) {
    return name_of(driver().cuStreamSynchronize(stream));
}

// The kernel for a while with nothing beside it.
void quiet_run(const Card& card, const Block& used, Record& record) {
    const Stream stream;
    RunningKernel kernel(card, stream, kLimitMs, used.address, kWords);
    const double us = microseconds([] { std::this_thread::sleep_for(kWatched); });
    kernel.tell_to_end();
    stream.wait();
    record.number("nothing beside it/rounds", 1e3 * kernel.rounds() / us, "1/ms");
    record.number("nothing beside it/longest round", kernel.longest_round_us(), "us");
}

}  // namespace

void remap_other_memory(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(2 * kMiB, 8);
    const Block used(card, card.sized(kWords, 8), Place::Device);
    zero(used.address, used.bytes);
    quiet_run(card, used, record);

    const CUmemLocation location = card.location(Place::Device);
    const CUmemGenericAllocationHandle handle = create(bytes, location);
    const Address address = reserve(bytes);
    Samples mapped, granted, unmapped, created, released;
    bool drained = false;
    const Stream stream;
    RunningKernel kernel(card, stream, kLimitMs, used.address, kWords);
    double us = 0;
    while (us < 1e3 * kWatched.count() && !drained) {
        us += microseconds([&] {
            mapped.add(microseconds([&] { CU(cuMemMap, address, bytes, 0, handle, 0); }));
            granted.add(microseconds([&] { grant(card, address, bytes, location); }));
            unmapped.add(microseconds([&] { CU(cuMemUnmap, address, bytes); }));
            CUmemGenericAllocationHandle other = 0;
            created.add(microseconds([&] { other = create(bytes, location); }));
            released.add(microseconds([&] { CU(cuMemRelease, other); }));
            drained = !stream.busy();
        });
    }
    kernel.tell_to_end();
    record.text("kernel ended with", outcome(stream));
    record.answer("a call waited for the kernel", drained);
    record.samples("beside it/map", mapped, "us");
    record.samples("beside it/set access", granted, "us");
    record.samples("beside it/unmap", unmapped, "us");
    record.samples("beside it/create", created, "us");
    record.samples("beside it/release", released, "us");
    record.number("beside it/set access answered CUDA_ERROR_NOT_READY", not_ready_answers(), "times");
    record.number("remaps beside it/rounds", 1e3 * kernel.rounds() / us, "1/ms");
    record.number("remaps beside it/longest round", kernel.longest_round_us(), "us");
    CU(cuMemAddressFree, address, bytes);
    CU(cuMemRelease, handle);
}

void unmap_used_memory(const Card& card, Record& record) {
    const Block used(card, card.sized(kWords, 8), Place::Device);
    zero(used.address, used.bytes);
    const Stream stream;
    RunningKernel kernel(card, stream, kLimitMs, used.address, kWords);
    CUresult status = CUDA_SUCCESS;
    const double us = microseconds([&] { status = driver().cuMemUnmap(used.address, used.bytes); });
    record.text("unmap/answer", name_of(status));
    record.number("unmap/time", us, "us");
    record.answer("unmap waited for the kernel", driver().cuStreamQuery(stream) == CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kernel.tell_to_end();
    record.text("kernel ended with", outcome(stream));
}

void remap_used_memory(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(kWords, 8);
    const CUmemLocation host = card.location(Place::Host);
    Block used(card, bytes, Place::Device);
    const Block other(card, bytes, host);
    zero(used.address, bytes);
    const Stream stream;
    RunningKernel kernel(card, stream, kLimitMs, used.address, kWords);
    // The kernel may fault between the calls of the remap, and the next call then answers with that.
    std::string answer = name_of(CUDA_SUCCESS);
    const double us = microseconds([&] {
        try {
            used.remap(card, other.handle, host);
        } catch (const Failure& failure) {
            answer = failure.call + ": " + name_of(failure.code);
        }
    });
    record.text("remap/answer", answer);
    record.number("remap/time", us, "us");
    record.answer("remap waited for the kernel", driver().cuStreamQuery(stream) == CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kernel.tell_to_end();
    record.text("kernel ended with", outcome(stream));
}

}  // namespace facts
