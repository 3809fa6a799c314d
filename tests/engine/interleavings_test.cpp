// A few steps of two or three threads in every order that takes at most so many preemptions (INTERLEAVINGS, a
// number, asks for another bound), at several paces of the GPU.
#ifndef __SANITIZE_THREAD__  // which has pthread functions of its own
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/engine/interleaver.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

std::size_t bound(std::size_t usual) {
    const char* const asked = std::getenv("INTERLEAVINGS");
    return asked ? static_cast<std::size_t>(std::atoi(asked)) : usual;
}

// Buffers of a GPU that holds two; of three the first is out already.
struct Small : Scene {
    Small(const RigOptions& options, int buffers) : Scene(options), second(rig.stream()) {
        for (int i = 0; i < buffers; ++i) make(24);
        rig.drain();
    }
    // The next fence of either stream is recorded anew.
    void leave_spares() {
        for (const CUstream each : {stream, second, stream, second}) {
            statuses[3] = need(1, each);
            rig.drain();
            std::vector<engine::Use> given = rig.session().given();
            rig.session().unfinished(given);
        }
    }
    // A kernel that changes a buffer, named or not; with others it reads.
    CUresult change(std::size_t index, CUstream where, std::vector<std::size_t> reads = {},
                    bool named = true) {
        Job job{where, {}, {}, !named, nullptr};
        std::vector<Region> sources;
        for (const std::size_t read : reads) sources.push_back(regions[read]);
        for (const Region& source : sources) job.names.push_back(source.address);
        if (named) job.names.push_back(regions[index].address);
        job.kernel = mix_kernel(regions[index], sources, 9);
        return rig.submit(std::move(job));
    }
    void expect_change(std::size_t index, std::vector<std::size_t> reads = {}) {
        std::vector<const Bytes*> sources;
        for (const std::size_t read : reads) sources.push_back(&expected[read]);
        mix(expected[index], sources, 9);
    }
    CUresult overwrite(std::size_t index, CUstream where, const Bytes& bytes) {
        const Region& region = regions[index];
        return rig.submit(
            {where, {}, {{region.address, region.bytes, true}}, false, write_kernel(region.address, bytes)});
    }
    void forget(std::size_t index) {
        regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(index));
        expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(index));
    }
    // All bytes are as expected. (Thousands of times: without doctest's help.)
    bool right() {
        *slow = true;
        rig.drain();
        bool right = rig.gpu().violation().empty() && statuses == std::vector<CUresult>(statuses.size());
        for (std::size_t i = 0; right && i < regions.size(); ++i) {
            Bytes bytes;
            right = rig.read(stream, regions[i], bytes) == CUDA_SUCCESS && bytes == expected[i];
        }
        return right && rig.gpu().violation().empty();
    }

    // A kernel that takes until somebody has looked for its end for long.
    CUresult change_slowly(std::size_t index, CUstream where, bool named = true) {
        return rig.submit(late_write(where, index, slow, named));
    }

    CUstream second;
    Gate slow = closed();
    std::vector<CUresult> statuses = std::vector<CUresult>(8);  // one for each thread
};

using Make = std::function<Bodies(Small&)>;

// Where memory is mapped on the host, what comes too late or too early may still find it; elsewhere it finds
// nothing. What is not named has to find it.
void in_every_order(std::size_t preemptions, const Make& make, bool all_named = true, int buffers = 3) {
    std::size_t runs = 0;
    std::size_t longest = 0;
    for (const std::uint64_t pace : {1, 2, 3}) {
        for (const bool maps_host : {true, false}) {
            if (!all_named && !maps_host) continue;
            std::unique_ptr<Small> small;
            const Explored explored = explore(
                bound(preemptions),
                [&] {
                    small.reset();
                    small = std::make_unique<Small>(options_of(Safety::Opaque, pace, maps_host), buffers);
                    return make(*small);
                },
                [&] { return small->right(); });
            CAPTURE(pace);
            CAPTURE(maps_host);
            CHECK(explored.all_well);
            runs += explored.runs;
            longest = std::max(longest, explored.longest);
        }
    }
    if (std::getenv("INTERLEAVINGS")) MESSAGE(runs << " orders, of up to " << longest << " decisions");
}

TEST_CASE("interleavings: two launches that need each other's memory") {
    in_every_order(1, [](Small& small) -> Bodies {
        small.expect_change(0, {2});
        small.expect_change(1);
        return {[&] { small.statuses[0] = small.change(0, small.stream, {2}); },
                [&] { small.statuses[1] = small.change(1, small.second); }};
    });
}

TEST_CASE("interleavings: a launch that needs the memory of one whose kernel is slow") {
    for (const bool named : {true, false}) {
        in_every_order(
            1,
            [named](Small& small) -> Bodies {
                small.open_after_a_while(small.slow);
                small.expect_change(0, {2});
                small.expect_change(1);
                return {[&, named] { small.statuses[0] = small.change_slowly(1, small.stream, named); },
                        [&] { small.statuses[1] = small.change(0, small.second, {2}); }};
            },
            named);
    }
}

TEST_CASE("interleavings: two launches into one stream") {
    in_every_order(1, [](Small& small) -> Bodies {
        small.expect_change(0);
        small.expect_change(2);
        return {[&] { small.statuses[0] = small.change(0, small.stream); },
                [&] { small.statuses[1] = small.change(2, small.stream); }};
    });
}

TEST_CASE("interleavings: a launch that reaches what it does not name, beside one that needs memory") {
    in_every_order(
        1,
        [](Small& small) -> Bodies {
            small.expect_change(1);
            small.expect_change(0);
            return {[&] { small.statuses[0] = small.change(1, small.stream, {}, false); },
                    [&] { small.statuses[1] = small.change(0, small.second); }};
        },
        false);
}

TEST_CASE("interleavings: a free beside a launch") {
    in_every_order(1, [](Small& small) -> Bodies {
        const engine::Address freed = small.regions[2].address;
        small.forget(2);
        small.expect_change(0);
        return {[&, freed] { small.statuses[0] = small.rig.session().free(freed); },
                [&] { small.statuses[1] = small.change(0, small.stream); }};
    });
}

TEST_CASE("interleavings: an allocation, and the first launch on it, beside a launch") {
    in_every_order(1, [](Small& small) -> Bodies {
        small.regions.push_back({0, 24 * small.rig.options().granularity});
        small.expected.push_back(noise(7, small.regions[3].bytes));
        small.expect_change(0);
        return {[&] {
                    small.statuses[0] =
                        small.rig.session().allocate(small.regions[3].bytes, small.regions[3].address);
                    if (small.statuses[0] == CUDA_SUCCESS)
                        small.statuses[0] =
                            small.overwrite(3, small.second, noise(7, small.regions[3].bytes));
                },
                [&] { small.statuses[1] = small.change(0, small.stream); }};
    });
}

TEST_CASE("interleavings: a buffer that is out is overwritten, beside a launch") {
    in_every_order(1, [](Small& small) -> Bodies {
        small.expected[0] = noise(8, small.regions[0].bytes);
        small.expect_change(2, {1});
        return {[&] { small.statuses[0] = small.overwrite(0, small.stream, small.expected[0]); },
                [&] { small.statuses[1] = small.change(2, small.second, {1}); }};
    });
}

TEST_CASE("interleavings: a stream's end, and a capture's beginning, beside a launch") {
    in_every_order(1, [](Small& small) -> Bodies {
        const CUstream third = small.rig.stream();
        const CUstream fourth = small.rig.stream();
        small.expect_change(2);
        small.statuses[0] = small.change(2, third);
        small.expect_change(0);
        return {[&, third, fourth] {
                    small.rig.session().capture_nears(fourth, true);
                    small.rig.destroy(third);
                },
                [&] { small.statuses[1] = small.change(0, small.stream); }};
    });
}

TEST_CASE(
    "interleavings: two launches into one stream, and two that need each other's, with fences of before") {
    for (const bool one_stream : {true, false}) {
        in_every_order(1, [one_stream](Small& small) -> Bodies {
            small.leave_spares();
            small.open_after_a_while(small.slow);
            small.expect_change(0, {2});
            small.expect_change(1);
            return {[&] { small.statuses[0] = small.change_slowly(1, small.stream); },
                    [&, one_stream] {
                        small.statuses[1] = small.change(0, one_stream ? small.stream : small.second, {2});
                    }};
        });
    }
}

// Nothing has moved yet, and a stream holds what nobody looked at.
TEST_CASE("interleavings: the driver is first out of memory for two threads, beside work from before") {
    for (const bool legacy : {true, false}) {
        in_every_order(
            1,
            [legacy](Small& small) -> Bodies {
                small.open_before_remap(0, small.slow);
                small.open_after_a_while(small.slow);
                small.statuses[2] = small.change_slowly(0, legacy ? CU_STREAM_LEGACY : small.second);
                small.expect_change(0);
                const auto reclaim = [&] { small.rig.session().reclaim(small.regions[0].bytes); };
                return {reclaim, reclaim};
            },
            true, 2);
    }
}

TEST_CASE("interleavings: three threads, a launch, a free and a launch") {
    in_every_order(0, [](Small& small) -> Bodies {
        const engine::Address freed = small.regions[2].address;
        small.forget(2);
        small.expect_change(0);
        small.expect_change(1);
        return {[&] { small.statuses[0] = small.change(0, small.stream); },
                [&, freed] { small.statuses[1] = small.rig.session().free(freed); },
                [&] { small.statuses[2] = small.change(1, small.second); }};
    });
}

}  // namespace
}  // namespace lms::fake
#endif
