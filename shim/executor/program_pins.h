// Chunks that the program wants kept on the device (<lms/lms.h>).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "shim/engine/engine.h"

namespace lms::executor {

// Needs the session's lock.
class ProgramPins {
  public:
    explicit ProgramPins(engine::Engine& engine) : engine_(engine) {}

    bool has(engine::ChunkId id) const { return times_.contains(id); }
    std::uint64_t bytes() const { return bytes_; }  // of all chunks, each once
    // Chunks that are on the device, by what the program names them by.
    void begin(engine::Address address, std::uint64_t bytes, std::span<const engine::ChunkId> chunks);
    // One that was begun by these names; false: there is none.
    bool end(engine::Address address, std::uint64_t bytes);
    // Of names in [address, address + bytes), where nothing is mapped any more.
    void end_at(engine::Address address, std::uint64_t bytes);
    // Of a buffer that is freed.
    void end_of(engine::AllocationId id);
    // For work that cannot run beside them; said once. False: there are none.
    bool give_up();

  private:
    struct One {
        engine::ChunkId chunk;
        std::uint64_t serial;
    };
    struct Pin {
        engine::Address address;
        std::uint64_t bytes;
        std::vector<One> chunks;
    };
    void let_go(const One& one);

    engine::Engine& engine_;
    std::vector<Pin> pins_;                                     // none of a buffer that is freed
    std::unordered_map<engine::ChunkId, std::uint32_t> times_;  // how often each is in those
    std::uint64_t bytes_ = 0;
};

}  // namespace lms::executor
