#include "tools/simcuda/driver/transfer.h"

#include <algorithm>
#include <cstring>

#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/memory.h"
#include "tools/simcuda/exec/grid.h"

namespace simcuda::driver {
namespace {

template <class Element>
void fill(std::byte* at, std::uint32_t value, std::uint64_t bytes) {
    auto* elements = reinterpret_cast<Element*>(at);
    std::fill(elements, elements + bytes / sizeof(Element), static_cast<Element>(value));
}

bool is_lost(const MemsetOp& op) {
    if (!is(Perverse::HostSetsLost)) return false;
    const RegionPtr region = memory_map().find(op.address);
    return region != nullptr && region->kind == Region::Kind::Mapping && region->on_host();
}

}  // namespace

Transfer::End Transfer::end_of(const CopyEnd& end) {
    auto* base = end.place == Place::Device ? to_host(end.address) : reinterpret_cast<void*>(end.address);
    return {static_cast<std::byte*>(base), end.pitch, end.pitch * end.slice_rows};
}

Transfer::Transfer(const CopyOp& copy)
    : from_(end_of(copy.from)),
      to_(end_of(copy.to)),
      width_(copy.width),
      height_(copy.height),
      depth_(copy.depth) {
    if (bytes() == 0) slice_ = depth_;
}

Transfer::Transfer(const MemsetOp& op)
    : to_{static_cast<std::byte*>(to_host(op.address)), op.pitch, 0},
      width_(op.width * op.element_bytes),
      height_(op.height),
      depth_(1),
      value_(op.value),
      element_bytes_(op.element_bytes) {
    if (bytes() == 0 || is_lost(op)) slice_ = depth_;
}

void Transfer::advance() {
    while (budget_ != 0 && !done()) {
        // Whole elements: a piece's end is a multiple of 4 unless it is the row's.
        const std::uint64_t part = std::min(budget_, width_ - column_);
        switch (element_bytes_) {
            case 0:
                std::memcpy(at(to_), at(from_), part);
                break;
            case 1:
                std::memset(at(to_), static_cast<int>(value_ & 0xFF), part);
                break;
            case 2:
                fill<std::uint16_t>(at(to_), value_, part);
                break;
            default:
                fill<std::uint32_t>(at(to_), value_, part);
                break;
        }
        budget_ -= part;
        column_ += part;
        if (column_ < width_) continue;
        column_ = 0;
        if (++row_ < height_) continue;
        row_ = 0;
        ++slice_;
    }
}

void Transfer::run(void* self) {
    static_cast<Transfer*>(self)->advance();
}

bool Transfer::step(std::uint64_t bytes) {
    budget_ = std::max<std::uint64_t>(bytes / 4 * 4, 4);
    return exec::guarded(&Transfer::run, this, &fault_);
}

}  // namespace simcuda::driver
