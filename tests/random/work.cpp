// Kernels, sets and copies: what they name, how they are submitted, what they do to the model.
#include <dlfcn.h>

#include <cstring>

#include "tests/random/kernels.h"
#include "tests/random/machine.h"

namespace rnd {

namespace {

bool is_synchronous(const Op& op) {
    if (op.verb == Verb::set) return op.a[6] == 1;
    if (op.verb == Verb::copy) return op.a[6] >= 2;
    return op.verb == Verb::up && op.a[5] == 0;
}

// What a graph may hold.
bool can_be_captured(const Op& op) {
    return op.verb != Verb::up && !is_synchronous(op);
}

// By a function that the shim does not know, where the driver has one.
CUresult fill_unseen(CUdeviceptr to, std::uint32_t value, std::size_t words, CUstream stream) {
    using Fill = decltype(&cuMemsetD32Async);
    static void* const unseen = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuFutureFill");
    static const DriverCall<Fill> fill{
        "cuMemsetD32Async", reinterpret_cast<Fill>(unseen ? unseen : driver_function("cuMemsetD32Async"))};
    return fill(to, value, words, stream);
}

std::uint32_t source_pitch(const Op& op) {
    return std::max(op.a[5], op.a[7] / 2);
}

}  // namespace

// Clips the arguments to the buffers they name; false if nothing is left.
bool Machine::resolve(Op& op, UseList& uses) const {
    const auto clip = [](std::uint32_t& at, std::uint32_t& length, std::uint32_t of) {
        at %= of;
        length = std::min(std::max(length % (kLargest + 1), 1u), of - at);
    };
    for (unsigned i = 1; i < (op.verb == Verb::mix || op.verb == Verb::packed  ? 4u
                              : op.verb == Verb::copy || op.verb == Verb::rect ? 3u
                                                                               : 2u);
         ++i) {
        op.a[i] %= kBuffers;
        if (!buffers_[op.a[i]].alive()) return false;
    }
    const Buffer& to = buffers_[op.a[1]];
    uses = {{op.a[1], Mode::Write}};
    switch (op.verb) {
        case Verb::mix:
        case Verb::packed: {
            const std::uint32_t count =
                std::min({to.count(), buffers_[op.a[2]].count(), buffers_[op.a[3]].count()});
            clip(op.a[4], op.a[5], count);
            uses.push_back({op.a[2], Mode::Read});
            uses.push_back({op.a[3], Mode::Read});
            return true;
        }
        case Verb::add:
            clip(op.a[2], op.a[3], to.count());
            uses[0].mode = Mode::Add;
            return true;
        case Verb::set:
            op.a[6] %= 2;
            op.a[4] = op.a[4] == 0 || op.a[4] == 4 ? op.a[4] : op.a[4] == 2 ? 2 : 1;
            clip(op.a[2], op.a[3], to.bytes);
            if (op.a[4] != 1) {
                const std::uint32_t unit = op.a[4] == 2 ? 2 : 4;
                op.a[2] = op.a[4] == 0 ? 0 : op.a[2] / unit * unit;
                op.a[3] = op.a[3] / unit * unit;
                op.a[3] = std::min(std::max(op.a[3], unit), to.bytes - op.a[2]);
            }
            return true;
        case Verb::up:
            op.a[5] %= 3;
            clip(op.a[2], op.a[3], to.bytes);
            return true;
        case Verb::copy:
            uses.push_back({op.a[2], Mode::Read});
            return resolve_copy(op);
        case Verb::rect:
            uses.push_back({op.a[2], Mode::Read});
            return resolve_rect(op);
        default:
            return false;
    }
}

bool Machine::resolve_copy(Op& op) const {
    const Buffer& to = buffers_[op.a[1]];
    const Buffer& from = buffers_[op.a[2]];
    op.a[3] %= to.bytes;
    op.a[4] %= from.bytes;
    op.a[5] = std::min({op.a[5] % kLargest + 1, to.bytes - op.a[3], from.bytes - op.a[4]});
    op.a[6] %= 4;
    if (op.a[6] % 2 == 0 && (to.of_host() || from.of_host())) ++op.a[6];
    const bool overlaps = op.a[3] < op.a[4] + op.a[5] && op.a[4] < op.a[3] + op.a[5];
    return op.a[1] != op.a[2] || !overlaps;
}

bool Machine::resolve_rect(Op& op) const {
    const Buffer& to = buffers_[op.a[1]];
    const Buffer& from = buffers_[op.a[2]];
    if (op.a[1] == op.a[2]) return false;
    op.a[3] %= to.bytes;
    op.a[4] %= from.bytes;
    op.a[5] = std::min({op.a[5] % 2048 + 1, to.bytes - op.a[3], from.bytes - op.a[4]});
    op.a[7] = std::max(op.a[7] % 4096, op.a[5]);
    const std::uint32_t fit_to = (to.bytes - op.a[3] - op.a[5]) / op.a[7] + 1;
    const std::uint32_t fit_from = (from.bytes - op.a[4] - op.a[5]) / source_pitch(op) + 1;
    op.a[6] = std::min({op.a[6] % 64 + 1, fit_to, fit_from});
    return true;
}

// Whether the stream's device reaches what is used: memory of its own and of the host, its peers', and, where
// both are memory of some device, what is copied (docs/compatibility.md tells why no more).
bool Machine::reaches(unsigned slot, const Op& op, const UseList& uses) const {
    if (peers_ && (!streams_[slot].capture || is_kernel(op))) return true;
    const auto of_host = [&](const Use& use) { return buffers_[use.buffer].of_host(); };
    // As nodes of graphs they do not (docs/compatibility.md).
    if (op.verb == Verb::copy && op.a[6] % 2 && !streams_[slot].capture &&
        std::none_of(uses.begin(), uses.end(), of_host))
        return true;
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
        return of_host(use) || buffers_[use.buffer].device == device_of(slot);
    });
}

void Machine::work(Hand& hand, const Op& asked) {
    Op op = asked;
    UseList uses;
    const bool computed = op.verb == Verb::section || op.verb == Verb::tagged;
    if (computed) op.verb = Verb::mix;
    if (!resolve(op, uses)) return;
    const bool waits = is_synchronous(op);
    const unsigned slot = waits ? kLegacy : slot_of(hand, op.a[0]);
    // A graph's nodes are given other buffers as they are.
    const bool as_asked = computed && options_.sections && !streams_[slot].capture;
    if ((waits && forbidden(hand)) || !reaches(slot, op, uses)) return;
    if (streams_[slot].capture && (!can_be_captured(op) || !fits_capture(*streams_[slot].capture, op, uses)))
        return;
    if (!prepare(hand, op, slot, uses)) return;
    const CUstream stream = stream_of(slot);
    if (op.verb == Verb::up) {
        upload_noise(hand, op, stream);
    } else if (!taken(as_asked ? submit_computed(op, asked.verb, stream) : submit(op, stream), "work",
                      uses)) {
        return;
    }
    if (streams_[slot].capture) return captured(op, slot, uses);
    submitted(hand, slot, uses);
    if (op.verb != Verb::up) apply(op);
}

CUresult Machine::launch_kernel(unsigned device, const char* name, std::uint32_t words, CUstream stream,
                                void** arguments) {
    return CU(cuLaunchKernel)(devices_[device].functions.at(name), (words + 127) / 128, 1, 1, 128, 1, 1, 0,
                              stream, arguments, nullptr);
}

CUresult Machine::submit(const Op& op, CUstream stream) {
    CUdeviceptr to = buffers_[op.a[1]].address;
    CUdeviceptr a = buffers_[op.a[2] % kBuffers].address;
    CUdeviceptr b = buffers_[op.a[3] % kBuffers].address;
    std::uint32_t at = op.a[4];
    std::uint32_t words = op.a[5];
    std::uint32_t k = op.a[6];
    switch (op.verb) {
        case Verb::mix: {
            void* arguments[] = {&to, &a, &b, &at, &words, &k};
            return launch_kernel(device_of(op.a[0] % (kPerThread + 1)), "mix", words, stream, arguments);
        }
        case Verb::packed: {
            Packed all{at, words, k, 0, to, {~0ull, 1}, a, b};
            void* arguments[] = {&all};
            return launch_kernel(device_of(op.a[0] % (kPerThread + 1)), "packed", words, stream, arguments);
        }
        case Verb::add: {
            std::uint32_t counts[] = {op.a[2], op.a[3], op.a[4]};
            void* arguments[] = {&to, &counts[0], &counts[1], &counts[2]};
            return launch_kernel(device_of(op.a[0] % (kPerThread + 1)), "add", op.a[3], stream, arguments);
        }
        case Verb::set:
            return submit_set(op, stream);
        case Verb::rect:
            return submit_rect(op, stream);
        default:
            return submit_copy(op, stream);
    }
}

// By the addresses of arrays of which only a section is there, or by addresses with tags in their upper bits.
CUresult Machine::submit_computed(const Op& op, Verb verb, CUstream stream) {
    CUdeviceptr operands[3];
    for (unsigned i = 0; i < 3; ++i) operands[i] = buffers_[op.a[i + 1]].address;
    std::uint32_t counts[] = {op.a[4], op.a[5], op.a[6]};
    const unsigned device = device_of(op.a[0] % (kPerThread + 1));
    if (verb == Verb::section) {
        // The first element is nowhere, or where another operand is.
        const auto apart = static_cast<std::int64_t>(operands[0] - operands[1]);
        std::int64_t lower = op.a[6] % 2 ? apart / 4 : std::int64_t{op.a[6]} << 8;
        for (CUdeviceptr& operand : operands) operand -= static_cast<CUdeviceptr>(4 * lower);
        void* arguments[] = {&operands[0], &operands[1], &operands[2], &lower,
                             &counts[0],   &counts[1],   &counts[2]};
        return launch_kernel(device, "section", counts[1], stream, arguments);
    }
    for (CUdeviceptr& operand : operands) operand |= CUdeviceptr{op.a[6] % 0xffff + 1} << 48;
    void* arguments[] = {&operands[0], &operands[1], &operands[2], &counts[0], &counts[1], &counts[2]};
    return launch_kernel(device, "tagged", counts[1], stream, arguments);
}

CUresult Machine::submit_copy(const Op& op, CUstream stream) {
    const CUdeviceptr to = buffers_[op.a[1]].address + op.a[3];
    const CUdeviceptr from = buffers_[op.a[2]].address + op.a[4];
    if (op.a[6] >= 2) open_gates();
    if (op.a[6] == 0) return CU(cuMemcpyDtoDAsync_v2)(to, from, op.a[5], stream);
    if (op.a[6] == 1) return CU(cuMemcpyAsync)(to, from, op.a[5], stream);
    return op.a[6] == 2 ? CU(cuMemcpyDtoD_v2)(to, from, op.a[5]) : CU(cuMemcpy)(to, from, op.a[5]);
}

CUresult Machine::submit_set(const Op& op, CUstream stream) {
    const CUdeviceptr to = buffers_[op.a[1]].address + op.a[2];
    const std::uint32_t value = op.a[5];
    const bool now = op.a[6] == 1;
    if (now) open_gates();
    switch (op.a[4]) {
        case 0: {
            CUdeviceptr start = to;
            std::uint32_t counts[] = {0, op.a[3] / 4, value};
            void* arguments[] = {&start, &counts[0], &counts[1], &counts[2]};
            return launch_kernel(now ? 0 : device_of(op.a[0] % (kPerThread + 1)), "fill", counts[1],
                                 now ? nullptr : stream, arguments);
        }
        case 4:
            if (!now && options_.hidden && value % 4 == 0) return fill_unseen(to, value, op.a[3] / 4, stream);
            return now ? CU(cuMemsetD32_v2)(to, value, op.a[3] / 4)
                       : CU(cuMemsetD32Async)(to, value, op.a[3] / 4, stream);
        case 2:
            return now ? CU(cuMemsetD16_v2)(to, static_cast<unsigned short>(value), op.a[3] / 2)
                       : CU(cuMemsetD16Async)(to, static_cast<unsigned short>(value), op.a[3] / 2, stream);
        default:
            return now ? CU(cuMemsetD8_v2)(to, static_cast<unsigned char>(value), op.a[3])
                       : CU(cuMemsetD8Async)(to, static_cast<unsigned char>(value), op.a[3], stream);
    }
}

CUresult Machine::submit_rect(const Op& op, CUstream stream) {
    CUDA_MEMCPY2D copy{};
    const Buffer& to = buffers_[op.a[1]];
    const Buffer& from = buffers_[op.a[2]];
    copy.dstMemoryType = copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstDevice = to.address + op.a[3];
    copy.srcDevice = from.address + op.a[4];
    copy.WidthInBytes = op.a[5];
    copy.Height = op.a[6];
    copy.dstPitch = op.a[7];
    copy.srcPitch = source_pitch(op);
    return CU(cuMemcpy2DAsync_v2)(&copy, stream);
}

void Machine::apply(const Op& op) {
    Buffer& to = buffers_[op.a[1]];
    std::uint8_t* const bytes = to.expected.data();
    switch (op.verb) {
        case Verb::mix:
        case Verb::packed: {
            const std::uint32_t* const a = buffers_[op.a[2]].words();
            const std::uint32_t* const b = buffers_[op.a[3]].words();
            for (std::uint32_t i = op.a[4]; i < op.a[4] + op.a[5]; ++i)
                to.words()[i] = mixed(to.words()[i], a[i], b[i], i, op.a[6]);
            break;
        }
        case Verb::add: {
            const std::lock_guard lock(adding_);
            for (std::uint32_t i = 0; i < op.a[3]; ++i) to.words()[op.a[2] + i] += op.a[4];
            break;
        }
        case Verb::set:
            for (std::uint32_t i = 0; i < op.a[3]; ++i) {
                const std::uint32_t value = op.a[4] == 0 ? filled(i / 4, op.a[5]) : op.a[5];
                bytes[op.a[2] + i] =
                    static_cast<std::uint8_t>(value >> (op.a[4] == 1 ? 0 : i % (op.a[4] == 2 ? 2 : 4) * 8));
            }
            break;
        case Verb::rect:
            for (std::uint32_t row = 0; row < op.a[6]; ++row) {
                std::memcpy(bytes + op.a[3] + row * op.a[7],
                            buffers_[op.a[2]].expected.data() + op.a[4] + row * source_pitch(op), op.a[5]);
            }
            break;
        default:
            std::memcpy(bytes + op.a[3], buffers_[op.a[2]].expected.data() + op.a[4], op.a[5]);
    }
}

}  // namespace rnd
