// write_trace FILE EVENTS: a trace as a training run under pressure leaves it, for what reads them. Layers of
// four chunks are used forth and back in half the memory that they take.
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "shim/trace/block_writer.h"

using namespace lms::trace;

namespace {

constexpr std::uint32_t kLayers = 48, kChunks = 4;  // of each
constexpr std::uint64_t kChunkBytes = 2 << 20;
constexpr std::uint64_t kTotal = kLayers * kChunks * kChunkBytes;

class Program {
  public:
    explicit Program(const char* path) {
        if (writer_.open(path) != 0) std::exit(1);
        writer_.write(Gpu{0, "made up", kTotal, kChunkBytes, true, now_ns_});
        for (std::uint32_t layer = 0; layer < kLayers; ++layer) allocate(layer);
        writer_.write(Residency{0, kTotal / 2, kTotal / 2, now_ns_, kTotal / 2});
    }

    std::uint64_t events() const { return events_; }

    void use(std::uint32_t layer) {
        for (std::uint32_t i = 0; i < kChunks; ++i) bring_in(layer * kChunks + i);
        std::vector<Touched> touched;
        for (std::uint32_t i = 0; i < kChunks; ++i) touched.push_back({layer * kChunks + i, layer});
        writer_.write(Launch{0, "_Z5layerPfPKf", 1, touched, now_ns_, now_ns_ + 900});
        tick();
        ++events_;
    }
    void end() { writer_.end(); }

  private:
    void allocate(std::uint32_t layer) {
        const std::vector<std::string> site = {
            "allocate+0x10 (program+0x1010)",
            "layer_" + std::to_string(layer % 12) + "+0x20 (program+0x2020)", "main+0x30 (program+0x3030)"};
        std::vector<Piece> pieces;
        for (std::uint32_t i = 0; i < kChunks; ++i)
            pieces.push_back({layer * kChunks + i, kChunkBytes, false});
        writer_.write(
            Allocation{0, layer, (layer + 1ull) << 32, kChunks * kChunkBytes, now_ns_, site, pieces});
        ++events_;
    }

    void bring_in(std::uint32_t chunk) {
        if (std::find(there_.begin(), there_.end(), chunk) != there_.end()) return;
        if (there_.size() == kLayers * kChunks / 2) {
            move(Direction::Out, there_.front());
            there_.pop_front();
        }
        there_.push_back(chunk);
        move(Direction::In, chunk);
    }

    void move(Direction direction, std::uint32_t chunk) {
        writer_.write(Move{0, direction, chunk / kChunks, chunk, kChunkBytes,
                           direction == Direction::In ? MoveReason::Needed : MoveReason::MakeRoom, now_ns_,
                           now_ns_ + 80'000, true});
        tick();
        ++events_;
    }

    // By the clock, which is what the writer goes by.
    void tick() { now_ns_ = std::max(now_ns_ + 1, now_ns()); }

    BlockWriter writer_;
    std::deque<std::uint32_t> there_;
    std::uint64_t now_ns_ = now_ns();
    std::uint64_t events_ = 0;
};

}  // namespace

int main(int count, char** words) {
    if (count != 3) return 2;
    Program program(words[1]);
    const std::uint64_t events = std::strtoull(words[2], nullptr, 10);
    for (std::uint32_t at = 0; program.events() < events; ++at) {
        const std::uint32_t step = at % (2 * kLayers);
        program.use(step < kLayers ? step : 2 * kLayers - 1 - step);
    }
    program.end();
}
