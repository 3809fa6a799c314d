// Buffers on a small GPU, and kernels that wait until they are let through.
#pragma once

#include <doctest/doctest.h>

#include <thread>

#include "tests/engine/rig.h"

namespace lms::fake {

using Gate = std::shared_ptr<std::atomic<bool>>;

// A GPU of 64 granules, and buffers on it: the first are the coldest.
struct Scene {
    explicit Scene(const RigOptions& options) : rig(options), stream(rig.stream()) {}

    std::size_t make(std::uint64_t granules) {
        const std::uint64_t bytes = granules * rig.options().granularity;
        Region region{0, bytes};
        REQUIRE(rig.session().allocate(bytes, region.address) == CUDA_SUCCESS);
        regions.push_back(region);
        expected.push_back(noise(regions.size(), bytes));
        REQUIRE(rig.write(stream, region, expected.back()) == CUDA_SUCCESS);
        return regions.size() - 1;
    }

    // A kernel that waits for the gate, then changes a buffer, named or not.
    Job late_write(CUstream where, std::size_t index, const Gate& gate_, bool named) {
        Job job{where, {}, {}, false, both(gate(gate_), mix_kernel(regions[index], {}, 9))};
        if (named) job.names.push_back(regions[index].address);
        return job;
    }
    void changed(std::size_t index) { mix(expected[index], {}, 9); }

    // A launch that brings a buffer in.
    CUresult need(std::size_t index, CUstream where) {
        return rig.submit({where, {regions[index].address}, {}, false, [](Memory&) { return true; }});
    }

    // All gates are open.
    void check() {
        rig.drain();
        for (std::size_t i = 0; i < regions.size(); ++i) {
            CAPTURE(i);
            Bytes bytes;
            REQUIRE(rig.read(stream, regions[i], bytes) == CUDA_SUCCESS);
            CHECK(bytes == expected[i]);
        }
        CHECK(rig.gpu().violation() == "");
    }

    // What a premature move does not survive: the gate opens when the copy is there and the remap is next.
    void open_before_remap(std::size_t index, const Gate& gate_) {
        const Region& region = regions[index];
        rig.gpu().before_unmap(region.address, region.address + region.bytes, Place::Device, [this, gate_] {
            *gate_ = true;
            rig.gpu().run(1000);
        });
    }
    // A rightful move waits; it looks at fences meanwhile.
    void open_after_a_while(const Gate& gate_) {
        rig.gpu().at(Call::Query, 100, [gate_] { *gate_ = true; });
    }

    Place place(std::size_t index) {
        Place place = Place::Host;
        rig.gpu().with_memory([&](const Memory& memory) { memory.where(regions[index].address, place); });
        return place;
    }

    Rig rig;
    CUstream stream;
    std::vector<Region> regions;
    std::vector<Bytes> expected;
};

inline RigOptions options_of(Safety safety, std::uint64_t seed = 1, bool maps_host = true) {
    RigOptions options;
    options.granules = 64;
    options.safety = safety;
    options.seed = seed;
    options.maps_host = maps_host;
    return options;
}

inline Gate closed() {
    return std::make_shared<std::atomic<bool>>(false);
}

}  // namespace lms::fake
