// Which chunks' mappings executable graphs and objects of the driver have recorded. Where such a buffer is
// freed, its addresses are given out anew only when those have let go: what was recorded over one memory is
// refused over another.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "shim/engine/chunk.h"

namespace lms::engine {

// Pure; the session's lock guards it. A chunk is known by its serial.
class RecordedMappings {
  public:
    using Serial = std::uint64_t;
    struct Addresses {
        Address begin;
        std::uint64_t bytes;
    };

    void add(Serial chunk) { ++counts_[chunk]; }
    // The addresses that can be used anew now, for this was the last that had recorded any of them.
    std::optional<Addresses> drop(Serial chunk);
    // The buffer of `chunks` is gone. Whether its addresses can be used anew; if not, drop() gives them in
    // time.
    bool gone(std::span<const Serial> chunks, Addresses addresses);

  private:
    struct Freed {
        Addresses addresses;
        std::size_t recorded;  // chunks that still are
    };
    std::unordered_map<Serial, std::uint32_t> counts_;
    std::unordered_map<Serial, std::shared_ptr<Freed>> freed_;
};

}  // namespace lms::engine
