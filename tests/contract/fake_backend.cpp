#include "tests/contract/fake_backend.h"

#include <atomic>

namespace lms::contract {

namespace {

template <typename Integer>
auto* bytes_of(Integer* words) {
    return reinterpret_cast<std::uint8_t*>(words);
}

}  // namespace

FakeBackend::FakeBackend(bool maps_host)
    : gpu_({.granularity = 4096, .device_bytes = 64 * 4096, .maps_host = maps_host, .seed = 5}) {}

void FakeBackend::bump(CUstream stream, Address address, std::uint32_t count) {
    gpu_.launch(stream, [=, done = std::uint32_t{0}](fake::Memory& memory) mutable {
        const Address at = address + 4 * done;
        std::uint32_t word = 0;
        memory.read(at, bytes_of(&word), 4);
        ++word;
        memory.write(at, bytes_of(&word), 4);
        return ++done == count;
    });
}

std::function<void()> FakeBackend::block(CUstream stream) {
    const auto open = std::make_shared<std::atomic<bool>>(false);
    gpu_.launch(stream, [open](fake::Memory&) { return open->load(); });
    return [open] { *open = true; };
}

void FakeBackend::write(Address address, const Words& words) {
    Words copy = words;
    gpu_.with_memory([&](fake::Memory& memory) {
        memory.write(address, bytes_of(copy.data()), 4 * copy.size(), fake::Memory::Actor::Copy);
    });
}

Words FakeBackend::read(Address address, std::uint32_t count) {
    Words words(count);
    gpu_.with_memory([&](fake::Memory& memory) {
        memory.read(address, bytes_of(words.data()), 4 * words.size(), fake::Memory::Actor::Copy);
    });
    return words;
}

bool FakeBackend::cpu_reads(Address address, std::uint32_t& word) {
    return gpu_.with_memory([&](fake::Memory& memory) {
        Place place = Place::Device;
        if (!memory.where(address, place) || place != Place::Host) return false;
        memory.read(address, bytes_of(&word), 4, fake::Memory::Actor::Copy);
        return true;
    });
}

}  // namespace lms::contract
