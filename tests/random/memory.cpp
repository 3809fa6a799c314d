// Buffers: made, freed, written and read by the host, filled with addresses.
#include <cstring>

#include "tests/random/kernels.h"
#include "tests/random/machine.h"

namespace rnd {

namespace {

std::vector<std::uint8_t> noise(std::uint32_t bytes, std::uint32_t k) {
    std::vector<std::uint8_t> data(bytes);
    std::uint32_t x = k * 2654435761u + 1;
    for (std::uint8_t& byte : data) {
        x = x * 1664525u + 1013904223u;
        byte = static_cast<std::uint8_t>(x >> 24);
    }
    return data;
}

}  // namespace

CUresult Machine::allocate_as(Buffer& buffer, CUstream stream) {
    void* pointer = nullptr;
    CUresult result = CUDA_SUCCESS;
    std::size_t pitch = 0;
    switch (buffer.kind) {
        case Async:
            return CU(cuMemAllocAsync)(&buffer.address, buffer.bytes, stream);
        case FromPool:
            return CU(cuMemAllocFromPoolAsync)(&buffer.address, buffer.bytes, devices_[buffer.device].pool,
                                               stream);
        case Pitched:
            result = CU(cuMemAllocPitch_v2)(&buffer.address, &pitch, kRow, buffer.bytes / kRow, 4);
            if (result == CUDA_SUCCESS && pitch != kRow) fail("pitch " + std::to_string(pitch));
            return result;
        case Managed:
            return CU(cuMemAllocManaged)(&buffer.address, buffer.bytes, CU_MEM_ATTACH_GLOBAL);
        case Pinned:
            result = CU(cuMemHostAlloc)(&pointer, buffer.bytes, CU_MEMHOSTALLOC_PORTABLE);
            buffer.address = reinterpret_cast<CUdeviceptr>(pointer);
            return result;
        case Own:
            return allocate_own(buffer);
        default:
            return CU(cuMemAlloc_v2)(&buffer.address, buffer.bytes);
    }
}

void Machine::allocate(Hand& hand, const Op& op) {
    Buffer& buffer = buffers_[op.a[0] % kBuffers];
    const unsigned slot = slot_of(hand, op.a[3]);
    // Who reaches what is mapped, and how, is another matter with two GPUs.
    const bool own = options_.own && !pair_;
    const std::uint32_t asked = op.a[1] % kKinds == Own && !own ? Plain : op.a[1] % kKinds;
    const std::uint32_t kind = asked == Plain && may_be_part(op.a[0] % kBuffers) ? Part : asked;
    const bool in_stream = kind == Async || kind == FromPool;
    // It is filled there at once, so that its bytes are known.
    if (buffer.alive() || !usable(hand, slot) || !prepare(hand, op, slot, {})) return;
    if (!in_stream && forbidden(hand)) return;
    Buffer made;
    made.kind = kind;
    made.device = device_of(slot);
    made.bytes = kind == Pitched ? (op.a[2] % kLargest / kRow + 1) * kRow : (op.a[2] % kLargest / 4 + 1) * 4;
    const CUresult result = kind == Part ? allocate_part(made, op.a[0] % kBuffers, hash(op, 5))
                                         : allocate_as(made, stream_of(slot));
    if (options_.scarce && result == CUDA_ERROR_OUT_OF_MEMORY) {
        ok(release_own(made), "cuMemRelease");
        return;
    }
    if (!ok(result, "allocation")) return;
    made.born = ++born_;
    made.expected.assign(made.bytes, 0);
    buffer = std::move(made);
    const std::uint32_t number = op.a[0] % kBuffers;
    if (in_stream) submitted(hand, slot, {{number, Mode::Write}});
    Op fill{op.thread, Verb::set, {op.a[3], number, 0, buffer.bytes, 1, hash(op, 1), 0}};
    switch (op.a[4] % 4) {
        case 1:
            fill = {op.thread, Verb::up, {op.a[3], number, 0, buffer.bytes, hash(op, 2), 1}};
            break;
        case 2:
            fill.a[4] = 0;
            break;
        case 3:
            fill.a[4] = 4;
            break;
        default:
            break;
    }
    work(hand, fill);
}

void Machine::give_back(Buffer& buffer) {
    enter(buffer.device);
    CUresult result = CUDA_SUCCESS;
    if (buffer.kind == Own) {
        result = free_own(buffer);
    } else if (buffer.kind == Pinned) {
        result = CU(cuMemFreeHost)(reinterpret_cast<void*>(buffer.address));
    } else if (buffer.kind != Part) {  // whose place the next one writes over
        result = CU(cuMemFree_v2)(buffer.address);
    }
    ok(result, "free");
    buffer = {};
}

void Machine::free_buffer(Hand& hand, const Op& op) {
    const std::uint32_t number = op.a[0] % kBuffers;
    Buffer& buffer = buffers_[number];
    const UseList uses = {{number, Mode::Write}};
    if (!buffer.alive() || !may_use(hand, uses)) return;
    const bool in_stream = buffer.kind == Async || buffer.kind == FromPool;
    if (in_stream && op.a[1] % 3 != 0) {
        const unsigned slot = slot_of(hand, op.a[2]);
        if (device_of(slot) != buffer.device || !usable(hand, slot) || !prepare(hand, op, slot, uses)) return;
        if (!ok(CU(cuMemFreeAsync)(buffer.address, stream_of(slot)), "cuMemFreeAsync")) return;
        submitted(hand, slot, {});
        buffer = {};
        return;
    }
    if (forbidden(hand)) return;
    // The driver waits for what uses the other kinds, on their device.
    const bool waits = in_stream || buffer.kind == Pinned || buffer.kind >= Own || pair_;
    if (waits && !host_waits(hand, uses)) return;
    open_gates();
    give_back(buffer);
}

// The host's own write to memory it can reach.
void Machine::write(Hand& hand, const Op& op) {
    const std::uint32_t number = op.a[0] % kBuffers;
    Buffer& buffer = buffers_[number];
    const UseList uses = {{number, Mode::Write}};
    if (!buffer.alive() || !buffer.of_host() || !may_use(hand, uses) || !host_waits(hand, uses)) return;
    const std::uint32_t at = op.a[1] % buffer.bytes;
    const std::uint32_t bytes = std::min(op.a[2] % kLargest + 1, buffer.bytes - at);
    const auto data = noise(bytes, op.a[3]);
    std::memcpy(reinterpret_cast<std::uint8_t*>(buffer.address) + at, data.data(), bytes);
    std::memcpy(buffer.expected.data() + at, data.data(), bytes);
}

void Machine::compare(std::uint32_t number, const std::uint8_t* bytes, std::uint32_t at,
                      std::uint32_t count) {
    const std::uint8_t* const expected = buffers_[number].expected.data() + at;
    if (std::memcmp(bytes, expected, count) == 0) return;
    std::uint32_t first = 0;
    while (bytes[first] == expected[first]) ++first;
    std::uint32_t wrong = 0;
    for (std::uint32_t i = first; i < count; ++i) wrong += bytes[i] != expected[i];
    fail("buffer " + std::to_string(number) + " (kind " + std::to_string(buffers_[number].kind) + ", " +
         std::to_string(buffers_[number].bytes) + " bytes): byte " + std::to_string(at + first) + " is " +
         std::to_string(bytes[first]) + ", not " + std::to_string(expected[first]) + "; " +
         std::to_string(wrong) + " differ");
}

void Machine::check(Hand& hand, const Op& op) {
    const std::uint32_t number = op.a[1] % kBuffers;
    Buffer& buffer = buffers_[number];
    const UseList uses = {{number, Mode::Read}};
    if (!buffer.alive() || !may_use(hand, uses) || forbidden(hand)) return;
    const std::uint32_t at = op.a[2] % buffer.bytes;
    const std::uint32_t bytes = std::min(op.a[3] % kLargest + 1, buffer.bytes - at);
    if (buffer.of_host() && op.a[4] % 2) {
        if (host_waits(hand, uses))
            compare(number, reinterpret_cast<std::uint8_t*>(buffer.address) + at, at, bytes);
        return;
    }
    const unsigned how = op.a[4] % 3;
    const unsigned slot = how == 0 ? kLegacy : slot_of(hand, op.a[0]);
    if (!reaches(slot, op, uses) || !usable(hand, slot) || !prepare(hand, op, slot, uses)) return;
    open_gates();
    std::vector<std::uint8_t> pageable(how == 1 ? 0 : bytes);
    std::uint8_t* const to = how == 1 ? hand.scratch : pageable.data();
    if (how == 0) {
        if (!ok(CU(cuMemcpyDtoH_v2)(to, buffer.address + at, bytes), "cuMemcpyDtoH")) return;
    } else if (!ok(CU(cuMemcpyDtoHAsync_v2)(to, buffer.address + at, bytes, stream_of(slot)),
                   "cuMemcpyDtoHAsync")) {
        return;
    }
    submitted(hand, slot, uses);
    if (how == 0) {
        hand.view->host.join(hand.view->streams[slot]);
    } else if (!synchronize(hand, slot)) {
        return;
    }
    compare(number, to, at, bytes);
}

// Bytes of the host's to a buffer: from memory of its own, or page-locked, where they stay until the end.
CUresult Machine::upload(Hand& hand, const Op& op, const std::vector<std::uint8_t>& data, CUstream stream) {
    Buffer& buffer = buffers_[op.a[1]];
    const CUdeviceptr to = buffer.address + op.a[2];
    const bool room = hand.scratch_used + data.size() <= kScratch - kLargest;
    if (op.a[5] == 0) {
        open_gates();
        return CU(cuMemcpyHtoD_v2)(to, data.data(), data.size());
    }
    if (op.a[5] == 1 || !room) return CU(cuMemcpyHtoDAsync_v2)(to, data.data(), data.size(), stream);
    std::uint8_t* const from = hand.scratch + kLargest + hand.scratch_used;
    hand.scratch_used += static_cast<std::uint32_t>(data.size());
    std::memcpy(from, data.data(), data.size());
    return CU(cuMemcpyHtoDAsync_v2)(to, from, data.size(), stream);
}

void Machine::upload_noise(Hand& hand, const Op& op, CUstream stream) {
    const auto data = noise(op.a[3], op.a[4]);
    if (ok(upload(hand, op, data, stream), "cuMemcpyHtoD")) {
        std::memcpy(buffers_[op.a[1]].expected.data() + op.a[2], data.data(), data.size());
    }
}

// Uploads the addresses of three buffers, then launches a kernel that is given only where they are.
void Machine::table(Hand& hand, const Op& op) {
    Op kernel = op;
    UseList uses;
    const std::uint32_t number = op.a[7] % kBuffers;
    const unsigned slot = slot_of(hand, op.a[0]);
    Buffer& buffer = buffers_[number];
    kernel.verb = Verb::mix;
    if (!resolve(kernel, uses)) return;
    const bool fits = buffer.alive() && !buffer.of_host() && buffer.bytes >= 24 && number != kernel.a[1] &&
                      number != kernel.a[2] && number != kernel.a[3];
    const bool is_hidden = op.verb == Verb::hidden;
    if (!fits || streams_[slot].capture || (is_hidden && !options_.hidden)) return work(hand, kernel);
    std::uint64_t addresses[3];
    for (unsigned i = 0; i < 3; ++i) {
        addresses[i] = buffers_[kernel.a[i + 1]].address;
        if (is_hidden) addresses[i] = ~addresses[i];
    }
    std::vector<std::uint8_t> data(sizeof addresses);
    std::memcpy(data.data(), addresses, sizeof addresses);
    const Op up{op.thread, Verb::up, {op.a[0], number, 0, 24, 0, 1 + hash(op, 3) % 2}};
    const UseList written = {{number, Mode::Write}};
    uses.push_back({number, Mode::Read});
    if (!reaches(slot, kernel, uses) || !prepare(hand, up, slot, written)) return;
    uses.pop_back();
    if (!ok(upload(hand, up, data, stream_of(slot)), "cuMemcpyHtoDAsync")) return;
    submitted(hand, slot, written);
    std::memcpy(buffer.expected.data(), data.data(), data.size());
    launch_by_table(hand, kernel, number, slot, uses, is_hidden ? "hidden" : "table");
}

void Machine::launch_by_table(Hand& hand, Op& op, std::uint32_t table, unsigned slot, UseList& uses,
                              const char* kernel) {
    uses.push_back({table, Mode::Read});
    if (!reaches(slot, op, uses) || !prepare(hand, op, slot, uses)) return;
    void* arguments[] = {&buffers_[table].address, &op.a[4], &op.a[5], &op.a[6]};
    if (!taken(launch_kernel(device_of(slot), kernel, op.a[5], stream_of(slot), arguments), kernel, uses))
        return;
    submitted(hand, slot, uses);
    apply(op);
}

// The same by a table that is there from before, or was copied.
void Machine::through(Hand& hand, const Op& op) {
    const std::uint32_t number = op.a[1] % kBuffers;
    const unsigned slot = slot_of(hand, op.a[0]);
    Buffer& buffer = buffers_[number];
    if (!buffer.alive() || buffer.of_host() || buffer.bytes < 24 || !usable(hand, slot) ||
        !may_use(hand, {{number, Mode::Read}}))
        return;
    std::uint64_t addresses[3];
    std::memcpy(addresses, buffer.expected.data(), sizeof addresses);
    Op kernel{op.thread, Verb::mix, {op.a[0], kBuffers, kBuffers, kBuffers, op.a[2], op.a[3], op.a[4]}};
    for (std::uint32_t other = 0; other < kBuffers; ++other) {
        if (together_ && buffer_claims_[other].thread != static_cast<int>(hand.thread) &&
            buffer_claims_[other].thread != kEverybody)
            continue;
        if (!buffers_[other].alive()) continue;
        for (unsigned i = 0; i < 3; ++i) {
            if (buffers_[other].address == addresses[i]) kernel.a[i + 1] = other;
        }
    }
    if (std::find(kernel.a.begin() + 1, kernel.a.begin() + 4, kBuffers) != kernel.a.begin() + 4) return;
    if (std::find(kernel.a.begin() + 1, kernel.a.begin() + 4, number) != kernel.a.begin() + 4) return;
    UseList uses;
    if (resolve(kernel, uses)) launch_by_table(hand, kernel, number, slot, uses, "table");
}

}  // namespace rnd
