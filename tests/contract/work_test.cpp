// The port's copies and fences: what runs when, and what waits for what.
#include <thread>

#include "tests/contract/backend.h"

namespace lms::contract {
namespace {

constexpr std::uint32_t kWords = 512;

// Three pieces of device memory.
struct Pieces {
    explicit Pieces(Backend& backend)
        : a(backend.port(), Place::Device, backend.port().granularity()),
          b(backend.port(), Place::Device, backend.port().granularity()),
          c(backend.port(), Place::Device, backend.port().granularity()) {
        backend.write(a.address, pattern(1, kWords));
        backend.write(b.address, pattern(2, kWords));
        backend.write(c.address, pattern(3, kWords));
    }
    Mapped a, b, c;
};

CUevent record(Port& port, CUstream stream) {
    CUevent event = nullptr;
    NEED(port.record(stream, event) == CUDA_SUCCESS);
    return event;
}

CONTRACT_TEST("work: copies of one direction run in order; the directions run beside each other") {
    Port& port = backend.port();
    EXPECT(port.stream(Direction::In) != port.stream(Direction::Out));
    const Pieces pieces(backend);
    const auto open = backend.block(port.stream(Direction::In));
    // Both return at once, though the stream stands still.
    NEED(port.copy(pieces.b.alias, pieces.a.alias, 4 * kWords, Direction::In) == CUDA_SUCCESS);
    NEED(port.copy(pieces.c.alias, pieces.b.alias, 4 * kWords, Direction::In) == CUDA_SUCCESS);
    const CUevent in = record(port, port.stream(Direction::In));
    EXPECT(port.query(in) == CUDA_ERROR_NOT_READY);
    NEED(port.copy(pieces.a.alias, pieces.c.alias, 4, Direction::Out) == CUDA_SUCCESS);
    const CUevent out = record(port, port.stream(Direction::Out));
    await(port, out);
    EXPECT(port.query(in) == CUDA_ERROR_NOT_READY);
    EXPECT(backend.read(pieces.b.address, kWords) == pattern(2, kWords));
    open();
    await(port, in);
    Words expected = pattern(1, kWords);
    expected[0] = pattern(3, 1)[0];
    EXPECT(backend.read(pieces.c.address, kWords) == expected);
    port.recycle(in);
    port.recycle(out);
}

CONTRACT_TEST("work: a set is enqueued like a copy, and in order with them") {
    Port& port = backend.port();
    const Pieces pieces(backend);
    const auto open = backend.block(port.stream(Direction::In));
    NEED(port.set(pieces.a.alias, 0xff, 4 * kWords, Direction::In) == CUDA_SUCCESS);
    NEED(port.copy(pieces.a.alias, pieces.b.alias, 4, Direction::In) == CUDA_SUCCESS);
    const CUevent done = record(port, port.stream(Direction::In));
    EXPECT(port.query(done) == CUDA_ERROR_NOT_READY);
    EXPECT(backend.read(pieces.a.address, kWords) == pattern(1, kWords));
    open();
    await(port, done);
    Words expected(kWords, 0xffffffff);
    expected[0] = pattern(2, 1)[0];
    EXPECT(backend.read(pieces.a.address, kWords) == expected);
    port.recycle(done);
}

CONTRACT_TEST("work: the port's streams do not wait for the legacy stream") {
    Port& port = backend.port();
    const Pieces pieces(backend);
    const auto open = backend.block(CU_STREAM_LEGACY);
    for (const Direction direction : {Direction::In, Direction::Out}) {
        NEED(port.copy(pieces.b.alias, pieces.a.alias, 4 * kWords, direction) == CUDA_SUCCESS);
        const CUevent done = record(port, port.stream(direction));
        await(port, done);
        port.recycle(done);
    }
    open();
    EXPECT(port.wait_for_stream(CU_STREAM_LEGACY) == CUDA_SUCCESS);
    EXPECT(backend.read(pieces.b.address, kWords) == pattern(1, kWords));
}

CONTRACT_TEST("work: an event covers the work before it and none after") {
    Port& port = backend.port();
    const Pieces pieces(backend);
    const CUstream stream = backend.stream();
    backend.bump(stream, pieces.a.address, kWords);
    const CUevent first = record(port, stream);
    const auto open = backend.block(stream);
    backend.bump(stream, pieces.a.address, kWords);
    const CUevent second = record(port, stream);
    await(port, first);
    EXPECT(backend.read(pieces.a.address, kWords) == plus(pattern(1, kWords), 1));
    EXPECT(port.query(second) == CUDA_ERROR_NOT_READY);
    open();
    await(port, second);
    EXPECT(port.query(first) == CUDA_SUCCESS);
    EXPECT(backend.read(pieces.a.address, kWords) == plus(pattern(1, kWords), 2));
    port.recycle(first);
    port.recycle(second);
}

CONTRACT_TEST("work: work submitted to a stream from now on waits for an event, other work does not") {
    Port& port = backend.port();
    const Pieces pieces(backend);
    const CUstream first = backend.stream();
    const CUstream second = backend.stream();
    const CUstream third = backend.stream();
    const auto open = backend.block(first);
    backend.bump(first, pieces.a.address, kWords);
    const CUevent gate = record(port, first);
    backend.bump(second, pieces.b.address, kWords);
    const CUevent before = record(port, second);
    NEED(port.wait_in_stream(second, gate) == CUDA_SUCCESS);
    backend.bump(second, pieces.a.address, kWords);
    const CUevent after = record(port, second);
    backend.bump(third, pieces.c.address, kWords);
    const CUevent beside = record(port, third);
    await(port, before);
    await(port, beside);
    EXPECT(port.query(after) == CUDA_ERROR_NOT_READY);
    EXPECT(backend.read(pieces.a.address, kWords) == pattern(1, kWords));
    open();
    await(port, after);
    EXPECT(backend.read(pieces.a.address, kWords) == plus(pattern(1, kWords), 2));
    for (const CUevent event : {gate, before, after, beside}) port.recycle(event);
}

CONTRACT_TEST("work: a recycled event's waits hold, and its next record is its own") {
    Port& port = backend.port();
    const Pieces pieces(backend);
    const CUstream first = backend.stream();
    const CUstream second = backend.stream();
    const auto open = backend.block(first);
    backend.bump(first, pieces.a.address, kWords);
    const CUevent gate = record(port, first);
    NEED(port.wait_in_stream(second, gate) == CUDA_SUCCESS);
    port.recycle(gate);
    // Most likely the same event, recorded where nothing stands in the way.
    const CUstream third = backend.stream();
    const CUevent again = record(port, third);
    await(port, again);
    backend.bump(second, pieces.a.address, kWords);
    const CUevent after = record(port, second);
    EXPECT(port.query(after) == CUDA_ERROR_NOT_READY);
    open();
    await(port, after);
    EXPECT(backend.read(pieces.a.address, kWords) == plus(pattern(1, kWords), 2));
    port.recycle(again);
    port.recycle(after);
}

CONTRACT_TEST("work: who waits for a stream waits for all it was given, and for no other's") {
    Port& port = backend.port();
    const Pieces pieces(backend);
    const CUstream stream = backend.stream();
    const auto open = backend.block(stream);
    backend.bump(stream, pieces.a.address, kWords);
    NEED(port.copy(pieces.c.alias, pieces.b.alias, 4 * kWords, Direction::In) == CUDA_SUCCESS);
    EXPECT(port.wait_for_stream(port.stream(Direction::In)) == CUDA_SUCCESS);
    std::thread opener([&] { open(); });
    EXPECT(port.wait_for_stream(stream) == CUDA_SUCCESS);
    opener.join();
    EXPECT(backend.read(pieces.c.address, kWords) == pattern(2, kWords));
    EXPECT(backend.read(pieces.a.address, kWords) == plus(pattern(1, kWords), 1));
    EXPECT(port.health() == CUDA_SUCCESS);
}

CONTRACT_TEST("work: a copy goes on through the alias while the address is remapped") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    const Pieces pieces(backend);
    const auto open = backend.block(port.stream(Direction::Out));
    NEED(port.copy(pieces.b.alias, pieces.a.alias, 4 * kWords, Direction::Out) == CUDA_SUCCESS);
    NEED(port.unmap(pieces.a.address, unit) == CUDA_SUCCESS);
    NEED(port.map(pieces.a.address, unit, pieces.c.handle, Place::Device) == CUDA_SUCCESS);
    open();
    EXPECT(port.wait_for_stream(port.stream(Direction::Out)) == CUDA_SUCCESS);
    EXPECT(backend.read(pieces.b.address, kWords) == pattern(1, kWords));
    EXPECT(backend.read(pieces.a.address, kWords) == pattern(3, kWords));
}

CONTRACT_TEST("work: many threads, none of which has set anything up") {
    Port& port = backend.port();
    const std::uint64_t unit = port.granularity();
    std::vector<std::thread> threads;
    for (std::uint32_t id = 0; id < 4; ++id) {
        threads.emplace_back([&port, unit, id] {
            for (std::uint32_t round = 0; round < 10; ++round) {
                Address address = 0;
                CUmemGenericAllocationHandle handle{};
                CUevent event = nullptr;
                EXPECT(port.reserve(unit, address) == CUDA_SUCCESS);
                EXPECT(port.create(unit, Place::Device, handle) == CUDA_SUCCESS);
                EXPECT(port.map(address, unit, handle, Place::Device) == CUDA_SUCCESS);
                const Direction direction = id % 2 ? Direction::In : Direction::Out;
                EXPECT(port.copy(address, address + unit / 2, unit / 2, direction) == CUDA_SUCCESS);
                EXPECT(port.record(port.stream(direction), event) == CUDA_SUCCESS);
                await(port, event);
                port.recycle(event);
                EXPECT(port.unmap(address, unit) == CUDA_SUCCESS);
                EXPECT(port.release(handle) == CUDA_SUCCESS);
                EXPECT(port.unreserve(address, unit) == CUDA_SUCCESS);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lms::contract
