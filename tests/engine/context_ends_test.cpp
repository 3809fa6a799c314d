// Contexts that end in one thread while another is given a new one.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "shim/program/contexts.h"
#include "tests/engine/scene.h"

using namespace lms::fake;
using namespace lms::program;

namespace {

CUcontext context(std::uintptr_t number) {
    return reinterpret_cast<CUcontext>(number << 8);
}

// Whether who does that waits until `end` is over.
template <typename Other>
bool waits_for(std::optional<ContextEnd>& end, Other other) {
    std::atomic<bool> back = false;
    std::thread thread([&] {
        other();
        back = true;
    });
    for (int i = 0; i < 100 && !back; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool waited = !back;
    end.reset();
    thread.join();
    return waited;
}

bool is_known(CUcontext context) {
    return std::ranges::count(known_contexts(), context) > 0;
}

// Who is given that one.
bool waits_for(std::optional<ContextEnd>& end, CUcontext given, CUdevice device) {
    const bool was_known = is_known(given);
    const bool waited = waits_for(end, [&] { new_context_seen(given, device); });
    CHECK(is_known(given));
    if (!was_known) forget_context(given);
    return waited;
}

}  // namespace

TEST_CASE(
    "contexts: a new one waits for the end of one that had its handle, and of the only one of its GPU") {
    constexpr CUdevice kGpu = 90, kOther = 91;
    const CUcontext goes = context(1), stays = context(2), made = context(3);
    context_seen(goes, kGpu);
    std::optional<ContextEnd> end;
    end.emplace(goes, kGpu);
    CHECK(waits_for(end, goes, kGpu));
    end.emplace(goes, kGpu);
    CHECK(waits_for(end, made, kGpu));
    end.emplace(goes, kGpu);
    CHECK_FALSE(waits_for(end, made, kOther));
    // The shim works through another then.
    context_seen(stays, kGpu);
    end.emplace(goes, kGpu);
    CHECK_FALSE(waits_for(end, made, kGpu));
    end.emplace(goes, kGpu);
    CHECK(waits_for(end, goes, kGpu));
    forget_context(goes);
    forget_context(stays);
    CHECK_FALSE(waits_for(end, goes, kGpu));
}

TEST_CASE("contexts: one ends after another of its GPU, and knows what that left") {
    constexpr CUdevice kGpu = 92, kOther = 93;
    const CUcontext one = context(4), two = context(5), three = context(6);
    for (const CUcontext each : {one, two}) context_seen(each, kGpu);
    std::optional<ContextEnd> end;
    end.emplace(one, kGpu);
    CHECK(end->successor() == two);
    CHECK_FALSE(is_left_to_end(one));
    CHECK(waits_for(end, [&] { const ContextEnd other(two, kGpu); }));
    end.emplace(one, kGpu);
    CHECK_FALSE(waits_for(end, [&] { const ContextEnd other(three, kOther); }));
    {
        // One within another, as green contexts'.
        const ContextEnd outer(one, kGpu);
        ContextEnd inner(two, kGpu);
        context_seen(three, kGpu);
        CHECK(inner.successor() == three);
    }
    for (const CUcontext each : {two, three}) forget_context(each);
    {
        ContextEnd last(one, kGpu);
        CHECK_FALSE(last.successor());
        CHECK(is_left_to_end(one));
    }
    CHECK_FALSE(is_left_to_end(one));
    forget_context(one);
}

TEST_CASE("contexts: one that is about to go is not used, nor while what it had is forgotten") {
    constexpr CUdevice kGpu = 95;
    const CUcontext goes = context(9), unseen = context(10);
    context_seen(goes, kGpu);
    for (const CUcontext each : {goes, unseen}) {
        CAPTURE(each);
        CHECK(static_cast<bool>(ContextUse(each)));
        {
            ContextEnd end(each, kGpu);
            CHECK(static_cast<bool>(ContextUse(each)));
            end.close();
            CHECK_FALSE(static_cast<bool>(ContextUse(each)));
        }
        // The driver has refused.
        CHECK(static_cast<bool>(ContextUse(each)));
        ContextEnd end(each, kGpu);
        end.close();
        end.is_gone();
        forget_context(each);
        CHECK_FALSE(is_known(each));
        CHECK_FALSE(static_cast<bool>(ContextUse(each)));
    }
    // Another may have the handle now.
    context_seen(goes, kGpu);
    CHECK(static_cast<bool>(ContextUse(goes)));
    forget_context(goes);
}

// However long that takes.
TEST_CASE("contexts: a new one waits while the last of its GPU is forgotten") {
    constexpr CUdevice kGpu = 94;
    const CUcontext goes = context(7), made = context(8);
    context_seen(goes, kGpu);
    std::optional<ContextEnd> end;
    end.emplace(goes, kGpu);
    end->is_gone();
    std::atomic<bool> back = false;
    std::thread thread([&] {
        new_context_seen(made, kGpu);
        back = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    CHECK_FALSE(back);
    end.reset();
    thread.join();
    for (const CUcontext each : {goes, made}) forget_context(each);
}

namespace {

// Buffers of which one lies on the host, in memory that is pinned in the context that ends.
struct EndingContext : Scene {
    static constexpr std::uint64_t kGranules = 124;

    EndingContext() : Scene(options()) {
        make(kGranules);
        make(kGranules);
        REQUIRE(place(0) == Place::Host);
    }

    static RigOptions options() {
        RigOptions options = options_of(lms::Safety::Opaque, 1, false);
        options.granules = 128;  // chunks are of two
        return options;
    }

    // New memory, which nothing has written.
    void allocate(std::uint64_t granules = kGranules) {
        Region region{0, granules * rig.options().granularity};
        REQUIRE(rig.session().allocate(region.bytes, region.address) == CUDA_SUCCESS);
        regions.push_back(region);
        expected.emplace_back();
    }
    // As a synchronous copy from the host writes it: where it lies.
    void copy_to(std::size_t index) {
        const Region region = regions[index];
        expected[index] = noise(index, region.bytes);
        lms::session::WorkingSet reach;
        reach.ranges.push_back({region.address, region.bytes, true, true});
        reach.stream = stream;
        lms::session::Work work(reach);
        REQUIRE(rig.session().acquire(work) == CUDA_SUCCESS);
        std::vector<lms::session::HostCopy> copies;
        rig.session().host_copies(work, copies);
        REQUIRE_FALSE(copies.empty());
        rig.gpu().with_memory([&](Memory& memory) {
            for (const auto& each : copies)
                memory.write(each.host, expected[index].data() + (each.address - region.address), each.bytes,
                             Memory::Actor::Copy);
        });
        rig.session().submitted(work);
    }
    void end_context() {
        rig.session().context_ending(nullptr, context(0x90));
        rig.gpu().destroy_contexts();
    }
};

}  // namespace

TEST_CASE("contexts: what is written to the host while its context ends does not go with that") {
    EndingContext scene;
    scene.allocate();
    scene.make(EndingContext::kGranules);
    REQUIRE(scene.need(1, scene.stream) == CUDA_SUCCESS);
    scene.rig.drain();
    REQUIRE(scene.place(3) == Place::Host);
    // The chunks of the first are pinned again, and some of the last: that between them has been passed.
    bool copied = false;
    scene.rig.gpu().at(Call::Pin, EndingContext::kGranules / 2 + 10, [&] {
        scene.copy_to(2);
        copied = true;
    });
    scene.end_context();
    REQUIRE(copied);
    scene.check();
}

TEST_CASE("contexts: what is being pinned while its context ends is not in that") {
    EndingContext scene;
    std::thread ends;
    // Enough is pinned for a small buffer, but its last chunk is of one granule.
    scene.make(EndingContext::kGranules);
    REQUIRE(scene.rig.session().free(scene.regions[0].address) == CUDA_SUCCESS);
    scene.regions.erase(scene.regions.begin());
    scene.expected.erase(scene.expected.begin());
    scene.allocate(5);
    scene.rig.gpu().at(Call::Pin, 1, [&] {
        ends = std::thread([&] { scene.end_context(); });
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    scene.copy_to(2);
    REQUIRE(ends.joinable());
    ends.join();
    scene.rig.gpu().destroy_contexts();
    scene.check();
}
