// Buffers that the program maps itself: several handles in a row, small ones among them, at addresses that
// change.
#include "tests/random/driver.h"
#include "tests/random/machine.h"

namespace rnd {

namespace {

constexpr std::uint32_t kGranule = 4 << 10;

std::uint32_t mapped_bytes(const Buffer& buffer) {
    return (buffer.bytes + kGranule - 1) / kGranule * kGranule;
}

// What is not mapped keeps calls past the ends of other buffers from finding this one.
std::uint32_t reserved_bytes(const Buffer& buffer) {
    return mapped_bytes(buffer) + kGranule;
}

}  // namespace

// In one reservation, or in two, one behind the other, where that can be had.
CUresult Machine::reserve_own(Buffer& buffer) {
    const std::uint32_t all = reserved_bytes(buffer);
    const std::uint32_t first = buffer.pieces.size() % 2 == 0 ? buffer.pieces.front().bytes : all;
    CUresult result = CU(cuMemAddressReserve)(&buffer.address, first, 0, 0, 0);
    if (result == CUDA_SUCCESS && first < all) {
        CUdeviceptr second = 0;
        result = CU(cuMemAddressReserve)(&second, all - first, 0, buffer.address + first, 0);
        if (result == CUDA_SUCCESS && second == buffer.address + first) {
            const std::lock_guard lock(own_.mutex);
            own_.reserved[buffer.address] = first;
            own_.reserved[second] = all - first;
            return result;
        }
        if (result == CUDA_SUCCESS) result = CU(cuMemAddressFree)(second, all - first);
        if (result == CUDA_SUCCESS) result = CU(cuMemAddressFree)(buffer.address, first);
        if (result == CUDA_SUCCESS) result = CU(cuMemAddressReserve)(&buffer.address, all, 0, 0, 0);
    }
    const std::lock_guard lock(own_.mutex);
    if (result == CUDA_SUCCESS) own_.reserved[buffer.address] = all;
    return result;
}

CUresult Machine::map_own(Buffer& buffer) {
    CUresult result = reserve_own(buffer);
    const std::lock_guard lock(own_.mutex);
    CUdeviceptr at = buffer.address;
    for (const Piece& piece : buffer.pieces) {
        if (result == CUDA_SUCCESS) result = CU(cuMemMap)(at, piece.bytes, 0, piece.handle, 0);
        if (result == CUDA_SUCCESS) own_.mapped[at] = piece.bytes;
        at += piece.bytes;
    }
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, devices_[buffer.device].device},
                                 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return result == CUDA_SUCCESS ? CU(cuMemSetAccess)(buffer.address, mapped_bytes(buffer), &access, 1)
                                  : result;
}

CUresult Machine::allocate_own(Buffer& buffer) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = devices_[buffer.device].device;
    for (std::uint32_t left = mapped_bytes(buffer); left > 0;) {
        // The shim leaves those of one granule to the driver.
        const std::uint32_t bytes = std::min(left, (1 + left / kGranule % 5) * kGranule);
        Piece piece{0, bytes};
        const CUresult result = CU(cuMemCreate)(&piece.handle, bytes, &properties, 0);
        if (result != CUDA_SUCCESS) return result;
        const std::lock_guard lock(own_.mutex);
        own_.handles.insert(piece.handle);
        buffer.pieces.push_back(piece);
        left -= bytes;
    }
    return map_own(buffer);
}

CUresult Machine::unmap_own(const Buffer& buffer) {
    CUresult result = CU(cuMemUnmap)(buffer.address, mapped_bytes(buffer));
    const std::lock_guard lock(own_.mutex);
    CUdeviceptr at = buffer.address;
    for (const Piece& piece : buffer.pieces) {
        if (result == CUDA_SUCCESS) own_.mapped.erase(at);
        at += piece.bytes;
    }
    const CUdeviceptr end = buffer.address + reserved_bytes(buffer);
    for (at = buffer.address; at < end && result == CUDA_SUCCESS;) {
        const std::size_t bytes = own_.reserved.at(at);
        result = CU(cuMemAddressFree)(at, bytes);
        if (result == CUDA_SUCCESS) own_.reserved.erase(at);
        at += bytes;
    }
    return result;
}

CUresult Machine::release_own(const Buffer& buffer) {
    CUresult result = CUDA_SUCCESS;
    for (const Piece& piece : buffer.pieces) {
        if (result == CUDA_SUCCESS) result = CU(cuMemRelease)(piece.handle);
        const std::lock_guard lock(own_.mutex);
        if (result == CUDA_SUCCESS) own_.handles.erase(piece.handle);
    }
    return result;
}

CUresult Machine::free_own(const Buffer& buffer) {
    const CUresult result = unmap_own(buffer);
    return result == CUDA_SUCCESS ? release_own(buffer) : result;
}

// No context takes it with it.
void Machine::drop_own() {
    const std::lock_guard lock(own_.mutex);
    for (const auto& [address, bytes] : own_.mapped) CU(cuMemUnmap)(address, bytes);
    for (const CUmemGenericAllocationHandle handle : own_.handles) CU(cuMemRelease)(handle);
    for (const auto& [address, bytes] : own_.reserved) CU(cuMemAddressFree)(address, bytes);
    own_.mapped.clear();
    own_.handles.clear();
    own_.reserved.clear();
}

// To other addresses, with all it holds.
void Machine::move(Hand& hand, const Op& op) {
    const std::uint32_t number = op.a[0] % kBuffers;
    Buffer& buffer = buffers_[number];
    const UseList uses = {{number, Mode::Write}};
    if (!buffer.alive() || buffer.kind != Own || !may_use(hand, uses) || forbidden(hand)) return;
    if (!host_waits(hand, uses)) return;
    open_gates();
    if (!ok(unmap_own(buffer), "unmap") || !ok(map_own(buffer), "map")) return;
    // Graphs name the addresses that it had.
    buffer.born = ++born_;
}

}  // namespace rnd
