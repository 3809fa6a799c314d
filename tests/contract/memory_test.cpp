// The port's memory: handles, addresses, mappings, pinned blocks.
#include "tests/contract/backend.h"

namespace lms::contract {
namespace {

std::uint64_t free_memory(Port& port) {
    device::MemoryInfo info{};
    EXPECT(port.memory_info(info) == CUDA_SUCCESS);
    return info.free_bytes;
}

std::vector<Place> places(const Port& port) {
    return port.maps_host_memory() ? std::vector{Place::Device, Place::Host} : std::vector{Place::Device};
}

CONTRACT_TEST("memory: device memory is what handles take and give back") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    NEED(unit > 0 && (unit & (unit - 1)) == 0);
    device::MemoryInfo before{};
    NEED(port.memory_info(before) == CUDA_SUCCESS);
    EXPECT(before.free_bytes <= before.total_bytes);
    CUmemGenericAllocationHandle handle{};
    NEED(port.create(3 * unit, Place::Device, handle) == CUDA_SUCCESS);
    device::MemoryInfo during{};
    NEED(port.memory_info(during) == CUDA_SUCCESS);
    EXPECT(during.free_bytes == before.free_bytes - 3 * unit);
    EXPECT(during.total_bytes == before.total_bytes);
    EXPECT(port.release(handle) == CUDA_SUCCESS);
    EXPECT(free_memory(port) == before.free_bytes);
    EXPECT(port.release(handle) != CUDA_SUCCESS);
}

CONTRACT_TEST("beyond the device: out of memory, the output untouched, and all of it still there") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    const std::uint64_t before = free_memory(port);
    CUmemGenericAllocationHandle handle = 42;
    EXPECT(port.create(before / unit * unit + unit, Place::Device, handle) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(handle == 42);
    EXPECT(free_memory(port) == before);
    NEED(port.create(before / unit * unit, Place::Device, handle) == CUDA_SUCCESS);
    CUmemGenericAllocationHandle more = 42;
    EXPECT(port.create(unit, Place::Device, more) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(port.release(handle) == CUDA_SUCCESS);
}

CONTRACT_TEST("memory: addresses are aligned, apart, and cost no memory") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    const std::uint64_t before = free_memory(port);
    Address first = 0;
    Address second = 0;
    NEED(port.reserve(1000 * unit, first) == CUDA_SUCCESS);
    NEED(port.reserve(1000 * unit, second) == CUDA_SUCCESS);
    EXPECT(first % unit == 0);
    EXPECT(second % unit == 0);
    EXPECT((first + 1000 * unit <= second || second + 1000 * unit <= first));
    EXPECT(free_memory(port) == before);
    EXPECT(port.unreserve(first, 1000 * unit) == CUDA_SUCCESS);
    EXPECT(port.unreserve(second, 1000 * unit) == CUDA_SUCCESS);
    CUmemGenericAllocationHandle handle{};
    NEED(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
    EXPECT(port.map(first, unit, handle, Place::Device) != CUDA_SUCCESS);
    EXPECT(port.release(handle) == CUDA_SUCCESS);
}

CONTRACT_TEST("memory: one handle at two addresses is the same bytes, to kernels and copies") {
    Port& port = backend.port();
    for (const Place place : places(port)) {
        Mapped memory(port, place, 2 * port.granularity());
        const Words words = pattern(1, 256);
        const CUstream stream = backend.stream();
        for (const Address base : {memory.address, memory.address + port.granularity() - 512}) {
            const Address alias = memory.alias + (base - memory.address);
            backend.write(base, words);
            EXPECT(backend.read(alias, 256) == words);
            backend.bump(stream, alias, 256);
            EXPECT(port.wait_for_stream(stream) == CUDA_SUCCESS);
            EXPECT(backend.read(base, 256) == plus(words, 1));
            backend.bump(stream, base, 256);
            EXPECT(port.wait_for_stream(stream) == CUDA_SUCCESS);
            EXPECT(backend.read(alias, 256) == plus(words, 2));
        }
    }
}

CONTRACT_TEST("memory: the CPU reads host memory at its device address, and device memory never") {
    Port& port = backend.port();
    for (const Place place : places(port)) {
        Mapped memory(port, place, port.granularity());
        backend.write(memory.address, pattern(3, 16));
        std::uint32_t word = 0;
        EXPECT(backend.cpu_reads(memory.address, word) == (place == Place::Host));
        if (place == Place::Host) EXPECT(word == pattern(3, 16)[0]);
    }
}

CONTRACT_TEST("memory: where host memory cannot be mapped it cannot be created") {
    Port& port = backend.port();
    if (port.maps_host_memory()) return;
    CUmemGenericAllocationHandle handle = 42;
    EXPECT(port.create(port.granularity(), Place::Host, handle) != CUDA_SUCCESS);
    EXPECT(handle == 42);
}

CONTRACT_TEST("memory: only whole mappings are taken away, and only once") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    Mapped memory(port, Place::Device, 4 * unit);
    backend.write(memory.address, pattern(4, 64));
    EXPECT(port.unmap(memory.address, unit) != CUDA_SUCCESS);
    EXPECT(port.unmap(memory.address + unit, 3 * unit) != CUDA_SUCCESS);
    EXPECT(backend.read(memory.address, 64) == pattern(4, 64));
    EXPECT(port.unmap(memory.address, 4 * unit) == CUDA_SUCCESS);
    EXPECT(port.unmap(memory.address, 4 * unit) != CUDA_SUCCESS);
    EXPECT(backend.read(memory.alias, 64) == pattern(4, 64));
    NEED(port.map(memory.address, 4 * unit, memory.handle, Place::Device) == CUDA_SUCCESS);
    EXPECT(backend.read(memory.address, 64) == pattern(4, 64));
}

CONTRACT_TEST("memory: nothing is mapped over a mapping, in part, or out of bounds") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    Mapped memory(port, Place::Device, 2 * unit);
    backend.write(memory.address, pattern(5, 64));
    CUmemGenericAllocationHandle other{};
    NEED(port.create(2 * unit, Place::Device, other) == CUDA_SUCCESS);
    EXPECT(port.map(memory.address, 2 * unit, other, Place::Device) != CUDA_SUCCESS);
    EXPECT(port.map(memory.address + unit, 2 * unit, other, Place::Device) != CUDA_SUCCESS);
    EXPECT(backend.read(memory.address, 64) == pattern(5, 64));
    Address room = 0;
    NEED(port.reserve(4 * unit, room) == CUDA_SUCCESS);
    EXPECT(port.map(room + 3 * unit, 2 * unit, other, Place::Device) != CUDA_SUCCESS);
    EXPECT(port.map(room + 8, 2 * unit, other, Place::Device) != CUDA_SUCCESS);
    EXPECT(port.map(room, 2 * unit, other + 12345, Place::Device) != CUDA_SUCCESS);
    EXPECT(port.map(room + 2 * unit, 2 * unit, other, Place::Device) == CUDA_SUCCESS);
    EXPECT(port.unreserve(room, 4 * unit) != CUDA_SUCCESS);
    EXPECT(port.unmap(room + 2 * unit, 2 * unit) == CUDA_SUCCESS);
    EXPECT(port.unreserve(room, 4 * unit) == CUDA_SUCCESS);
    EXPECT(port.release(other) == CUDA_SUCCESS);
}

CONTRACT_TEST("memory: an address changes its memory and changes back") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    for (const Place place : places(port)) {
        Mapped memory(port, Place::Device, unit);
        Mapped other(port, place, unit);
        backend.write(memory.address, pattern(6, 128));
        backend.write(other.address, pattern(7, 128));
        const CUstream stream = backend.stream();
        for (std::uint32_t round = 1; round <= 5; ++round) {
            NEED(port.unmap(memory.address, unit) == CUDA_SUCCESS);
            NEED(port.map(memory.address, unit, other.handle, place) == CUDA_SUCCESS);
            backend.bump(stream, memory.address, 128);
            EXPECT(port.wait_for_stream(stream) == CUDA_SUCCESS);
            NEED(port.unmap(memory.address, unit) == CUDA_SUCCESS);
            NEED(port.map(memory.address, unit, memory.handle, Place::Device) == CUDA_SUCCESS);
            EXPECT(backend.read(memory.address, 128) == pattern(6, 128));
            EXPECT(backend.read(other.address, 128) == plus(pattern(7, 128), round));
        }
    }
}

CONTRACT_TEST("memory: memory outlives its handle as long as it is mapped") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    const std::uint64_t before = free_memory(port);
    Address address = 0;
    CUmemGenericAllocationHandle handle{};
    NEED(port.reserve(unit, address) == CUDA_SUCCESS);
    NEED(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
    NEED(port.map(address, unit, handle, Place::Device) == CUDA_SUCCESS);
    backend.write(address, pattern(8, 32));
    EXPECT(port.release(handle) == CUDA_SUCCESS);
    EXPECT(backend.read(address, 32) == pattern(8, 32));
    EXPECT(free_memory(port) == before - unit);
    EXPECT(port.unmap(address, unit) == CUDA_SUCCESS);
    EXPECT(free_memory(port) == before);
    EXPECT(port.unreserve(address, unit) == CUDA_SUCCESS);
}

CONTRACT_TEST("memory: pinned memory holds what is copied to it") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    Mapped memory(port, Place::Device, unit);
    Address host = 0;
    NEED(port.pin(unit, host) == CUDA_SUCCESS);
    const auto count = static_cast<std::uint32_t>(unit / 4);
    backend.write(memory.address, pattern(9, count));
    NEED(port.copy(host, memory.alias, unit, Direction::Out) == CUDA_SUCCESS);
    EXPECT(port.wait_for_stream(port.stream(Direction::Out)) == CUDA_SUCCESS);
    backend.write(memory.address, pattern(10, count));
    std::uint32_t word = 0;
    EXPECT(backend.cpu_reads(host + 4, word));
    EXPECT(word == pattern(9, 2)[1]);
    NEED(port.copy(memory.alias, host, unit, Direction::In) == CUDA_SUCCESS);
    EXPECT(port.wait_for_stream(port.stream(Direction::In)) == CUDA_SUCCESS);
    EXPECT(backend.read(memory.address, count) == pattern(9, count));
    EXPECT(port.unpin(host) == CUDA_SUCCESS);
    EXPECT(port.unpin(host) != CUDA_SUCCESS);
}

}  // namespace
}  // namespace lms::contract
