#include "tools/simcuda/driver/copy.h"

#include <cstring>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/array.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/graph/graph_memory.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/driver/stream.h"
#include "tools/simcuda/driver/transfer.h"

namespace simcuda::driver {
namespace {

// A synchronous copy of at most this many pageable bytes returns once they are staged.
constexpr std::uint64_t kStagedAtOnce = 1 << 20;

bool on_device(const CopyEnd& end) {
    return end.place == Place::Device;
}

// Extents and pitches are the program's: nothing of them may wrap.
std::uint64_t product(std::uint64_t a, std::uint64_t b) {
    std::uint64_t result = 0;
    require(!__builtin_mul_overflow(a, b, &result), CUDA_ERROR_INVALID_VALUE);
    return result;
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
    std::uint64_t result = 0;
    require(!__builtin_add_overflow(a, b, &result), CUDA_ERROR_INVALID_VALUE);
    return result;
}

std::uint64_t total(const CopyOp& copy) {
    return copy.width * copy.height * copy.depth;
}

std::uint64_t span_of(const CopyOp& copy, const CopyEnd& end) {
    const std::uint64_t rows = sum(product(copy.depth - 1, end.slice_rows), copy.height);
    return pitched_span(copy.width, 1, rows, end.pitch);
}

bool asks_sync_memops(const CopyEnd& end) {
    if (end.place == Place::Pageable) return false;
    const RegionPtr region = memory_map().find(end.address);
    return region != nullptr && region->sync_memops;
}

// What CU_DEVICE_ATTRIBUTE_MAX_PITCH answers. A pitch stays below it.
constexpr std::uint64_t kMaxPitch = 0x7FFF'FFFF;

// One side of a CUDA_MEMCPY3D.
struct Side {
    CUmemorytype type;
    const void* host;
    CUdeviceptr device;
    CUarray array;
    std::size_t x, y, z, lod, pitch, height;
};

// An array knows its pitch and height.
CopyEnd array_side(const Side& side, const CopyOp& copy) {
    const auto array = checked_array(side.array);
    require(side.x % array->element_bytes == 0, CUDA_ERROR_INVALID_VALUE);
    const auto within = [](std::size_t start, std::size_t extent, std::size_t limit) {
        return start <= limit && extent <= limit - start;
    };
    require(within(side.x, copy.width, array->row_bytes()) && within(side.y, copy.height, array->rows()) &&
                within(side.z, copy.depth, array->slices()),
            CUDA_ERROR_INVALID_VALUE);
    const std::uint64_t offset = (side.z * array->rows() + side.y) * array->pitch + side.x;
    return {Place::Device, array->memory->address + offset, array->pitch, array->rows()};
}

CopyEnd side_end(const Context& context, const Side& side, const CopyOp& copy) {
    require(side.lod == 0, CUDA_ERROR_INVALID_VALUE);
    if (side.type == CU_MEMORYTYPE_ARRAY) return array_side(side, copy);
    CopyEnd end;
    const std::uint64_t columns = sum(side.x, copy.width), rows = sum(side.y, copy.height);
    end.pitch = side.pitch != 0 ? side.pitch : columns;
    end.slice_rows = side.height != 0 ? side.height : rows;
    const bool one_row = rows == 1 && side.z == 0 && copy.depth == 1;  // of which the pitch says nothing
    require(end.pitch >= columns && (one_row || end.pitch < kMaxPitch), CUDA_ERROR_INVALID_VALUE);
    require(end.slice_rows >= rows, CUDA_ERROR_INVALID_VALUE);
    const std::uint64_t offset =
        sum(product(sum(product(side.z, end.slice_rows), side.y), end.pitch), side.x);
    const std::uint64_t span = span_of(copy, end);
    const auto base =
        side.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uint64_t>(side.host) : side.device;
    sum(sum(base, offset), span);  // ends where addresses do, or before
    CopyEnd found;
    switch (side.type) {
        case CU_MEMORYTYPE_HOST:
            found = host_end(context, static_cast<const std::byte*>(side.host) + offset, span);
            break;
        case CU_MEMORYTYPE_DEVICE:
            found = device_end(context, side.device + offset, span);
            break;
        case CU_MEMORYTYPE_UNIFIED:
            found = any_end(context, side.device + offset, span);
            break;
        default:
            throw Failure{CUDA_ERROR_INVALID_VALUE};
    }
    end.place = found.place;
    end.address = found.address;
    return end;
}

}  // namespace

std::uint64_t pitched_span(std::uint64_t width, unsigned element_bytes, std::uint64_t rows,
                           std::uint64_t pitch) {
    return sum(product(rows - 1, pitch), product(width, element_bytes));
}

CopyEnd device_end(const Context& context, CUdeviceptr address, std::uint64_t span) {
    bool host = false;
    bool device = false;
    bool as_host = false;  // by the host's own address
    const bool covered = memory_map().covers(address, span, [&](const Region& region) {
        (region.on_host() ? host : device) = true;
        as_host |=
            region.host_address() != region.device_address() && region.address == region.host_address();
        return region.accessible(context.device());
    });
    // What a graph allocates has its address before it is there.
    require(covered || graph_memory_at(address, span) != nullptr, CUDA_ERROR_INVALID_VALUE);
    if (!host) return {Place::Device, address};
    require(!is(Perverse::HostCopiesFail) || memory_map().find(address)->kind != Region::Kind::Mapping,
            CUDA_ERROR_INVALID_VALUE);
    require(!is(Perverse::MixedCopiesFail) || !device, CUDA_ERROR_INVALID_VALUE);
    return {Place::Pinned, as_host ? address : other_side(address)};
}

CopyEnd host_end(const Context& context, const void* pointer, std::uint64_t span) {
    const auto address = reinterpret_cast<std::uint64_t>(pointer);
    require(address != 0, CUDA_ERROR_INVALID_VALUE);
    // Addresses are unified: what is called the host's may be a device's.
    if (in_device_window(address)) return device_end(context, address, span);
    if (memory_map().find(address) == nullptr) return {Place::Pageable, address};
    const bool locked = memory_map().covers(address, span, [](const Region&) { return true; });
    require(locked, CUDA_ERROR_INVALID_VALUE);  // runs out of what is page-locked
    return {Place::Pinned, address};
}

CopyEnd any_end(const Context& context, CUdeviceptr address, std::uint64_t span) {
    if (in_device_window(address) || memory_map().find(address) != nullptr)
        return device_end(context, address, span);
    return host_end(context, reinterpret_cast<const void*>(address), span);
}

CopyOp linear_copy(const CopyEnd& to, const CopyEnd& from, std::size_t bytes) {
    CopyOp copy;
    copy.from = from;
    copy.to = to;
    copy.width = bytes;
    return copy;
}

CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& copy) {
    CUDA_MEMCPY3D p{};
    p.srcXInBytes = copy.srcXInBytes;
    p.srcY = copy.srcY;
    p.srcMemoryType = copy.srcMemoryType;
    p.srcHost = copy.srcHost;
    p.srcDevice = copy.srcDevice;
    p.srcArray = copy.srcArray;
    p.srcPitch = copy.srcPitch;
    p.dstXInBytes = copy.dstXInBytes;
    p.dstY = copy.dstY;
    p.dstMemoryType = copy.dstMemoryType;
    p.dstHost = copy.dstHost;
    p.dstDevice = copy.dstDevice;
    p.dstArray = copy.dstArray;
    p.dstPitch = copy.dstPitch;
    p.WidthInBytes = copy.WidthInBytes;
    p.Height = copy.Height;
    p.Depth = 1;
    return p;
}

CopyOp pitched_copy(const Context& context, const CUDA_MEMCPY3D& copy) {
    return pitched_copy(context, context, copy);
}

CopyOp pitched_copy(const Context& to, const Context& from, const CUDA_MEMCPY3D& p) {
    CopyOp copy;
    copy.width = p.WidthInBytes;
    copy.height = p.Height;
    copy.depth = p.Depth;
    if (product(product(copy.width, copy.height), copy.depth) == 0) return copy;
    if (p.srcMemoryType == CU_MEMORYTYPE_ARRAY && p.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
        require(checked_array(p.srcArray)->element_bytes == checked_array(p.dstArray)->element_bytes,
                CUDA_ERROR_INVALID_VALUE);
    }
    copy.from = side_end(from,
                         {p.srcMemoryType, p.srcHost, p.srcDevice, p.srcArray, p.srcXInBytes, p.srcY, p.srcZ,
                          p.srcLOD, p.srcPitch, p.srcHeight},
                         copy);
    copy.to = side_end(to,
                       {p.dstMemoryType, p.dstHost, p.dstDevice, p.dstArray, p.dstXInBytes, p.dstY, p.dstZ,
                        p.dstLOD, p.dstPitch, p.dstHeight},
                       copy);
    return copy;
}

void stage_host_source(CopyOp& copy) {
    if (on_device(copy.from)) return;
    copy.staged = std::shared_ptr<std::byte[]>(new std::byte[total(copy)]);
    std::byte* to = copy.staged.get();
    for (std::size_t slice = 0; slice < copy.depth; ++slice) {
        for (std::size_t row = 0; row < copy.height; ++row, to += copy.width) {
            const std::uint64_t from =
                copy.from.address + (slice * copy.from.slice_rows + row) * copy.from.pitch;
            std::memcpy(to, reinterpret_cast<const void*>(from), copy.width);
        }
    }
    copy.from = {Place::Pinned, reinterpret_cast<std::uint64_t>(copy.staged.get()), copy.width, copy.height};
}

namespace {

// Memory of the program's process, and not behind a device address.
bool is_plain_host(const CopyEnd& end) {
    if (end.place != Place::Pinned) return end.place == Place::Pageable;
    // What a device address named is where its memory is mapped a second time.
    for (const std::uint64_t address : {end.address, other_side(end.address)}) {
        const RegionPtr region = memory_map().find(address);
        if (region != nullptr && region->kind != Region::Kind::Mapping) return true;
    }
    return false;
}

// False: it is for the stream.
bool done_early(const CopyOp& copy) {
    if (on_device(copy.from) || on_device(copy.to)) return false;
    const bool plain = is_plain_host(copy.from) && is_plain_host(copy.to);
    if (!is(plain ? Perverse::HostCopiesEarly : Perverse::MappedCopiesEarly)) return false;
    return Transfer(copy).step(total(copy) + 4);
}

}  // namespace

CUresult copy_async(Context& context, Stream& stream, CopyOp copy) {
    if (total(copy) == 0) return CUDA_SUCCESS;
    if (stream.capture != nullptr) {
        submit(stream, std::move(copy));
        return CUDA_SUCCESS;
    }
    if (done_early(copy)) return CUDA_SUCCESS;
    const bool host_to_host = !on_device(copy.from) && !on_device(copy.to);
    const bool stages = is(Perverse::CopiesBlock) && on_device(copy.from) != on_device(copy.to);
    const bool blocks = host_to_host || stages || copy.to.place == Place::Pageable;
    if (copy.from.place == Place::Pageable && !blocks) stage_host_source(copy);
    const WorkPtr work = submit(stream, std::move(copy));
    return blocks ? wait(context, work) : CUDA_SUCCESS;
}

CUresult copy_between(Stream& stream, CopyOp copy, std::set<std::shared_ptr<Context>> contexts) {
    contexts.insert(stream.context.shared_from_this());
    for (const auto& context : contexts) {
        const CUresult allowed = capture_check_legacy_stream(*context);
        require(allowed == CUDA_SUCCESS, allowed);
    }
    if (total(copy) == 0) return CUDA_SUCCESS;
    const bool in_full = asks_sync_memops(copy.from) || asks_sync_memops(copy.to);
    const WorkPtr work = submit_between(stream, std::move(copy), contexts);
    return in_full ? wait(stream.context, work) : CUDA_SUCCESS;
}

CUresult copy_and_wait(Context& context, Stream& stream, CopyOp copy) {
    const CUresult allowed = capture_check_query(stream);
    require(allowed == CUDA_SUCCESS, allowed);
    if (total(copy) == 0 || done_early(copy)) return CUDA_SUCCESS;
    const bool in_full = asks_sync_memops(copy.from) || asks_sync_memops(copy.to);
    if (!in_full && on_device(copy.from) && on_device(copy.to))
        return copy_async(context, stream, std::move(copy));
    if (!in_full && copy.from.place == Place::Pageable && on_device(copy.to) &&
        total(copy) <= kStagedAtOnce) {
        const CUresult earlier = synchronize(stream);
        return earlier == CUDA_SUCCESS ? copy_async(context, stream, std::move(copy)) : earlier;
    }
    return wait(context, submit(stream, std::move(copy)));
}

}  // namespace simcuda::driver
