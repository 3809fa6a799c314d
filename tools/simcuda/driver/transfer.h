// A copy or a fill under way: done in pieces, with faults caught.
#pragma once

#include <cstdint>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class Transfer {
  public:
    explicit Transfer(const CopyOp& copy);
    explicit Transfer(const MemsetOp& fill);

    std::uint64_t bytes() const { return width_ * height_ * depth_; }
    std::uint64_t bytes_done() const { return (slice_ * height_ + row_) * width_ + column_; }
    bool done() const { return slice_ == depth_; }

    // Moves on by about `bytes`. False if it touched memory that is not there; fault() says where.
    bool step(std::uint64_t bytes);
    DeviceAddress fault() const { return fault_; }

  private:
    void advance();
    static void run(void* self);

    struct End {
        std::byte* base = nullptr;           // of this process
        std::uint64_t pitch = 0, slice = 0;  // bytes to the next row, slice
    };
    static End end_of(const CopyEnd& end);
    std::byte* at(const End& end) const { return end.base + slice_ * end.slice + row_ * end.pitch + column_; }

    End from_, to_;
    std::uint64_t width_, height_, depth_;  // width in bytes
    std::uint32_t value_ = 0;               // fill
    unsigned element_bytes_ = 0;            // fill; 0: copy

    std::uint64_t column_ = 0, row_ = 0, slice_ = 0;  // where it stands
    std::uint64_t budget_ = 0;                        // bytes left to do in this step
    DeviceAddress fault_ = 0;
};

}  // namespace simcuda::driver
