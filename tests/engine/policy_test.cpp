// What a plugin is told of chunks, work and copies, and what becomes of one that gives no answer, or is slow.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "policy/host.h"
#include "shim/trace/live_page.h"
#include "shim/util/log.h"
#include "tests/engine/recorder/recorder.h"
#include "tests/engine/scene.h"
#include "tests/support/scratch.h"

namespace lms::fake {
namespace {

using Ids = std::vector<engine::ChunkId>;
using Accesses = std::vector<unsigned>;

// A recorder of its own, for plugins that are slow are never asked again.
struct Plugin {
    Plugin() {
        const std::string command =
            "cc -Wall -Werror -shared -fPIC -Iinclude -o " + path + " tests/engine/recorder/recorder.c";
        REQUIRE(system(command.c_str()) == 0);
        void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        REQUIRE(library);
        told = static_cast<recorder*>(dlsym(library, "the_recorder"));
        REQUIRE(told);
    }
    // In order of address.
    Ids chunks_of(const Region& region) const {
        Ids chunks;
        for (engine::ChunkId id = 0; id < RECORDER_CHUNKS; ++id) {
            const lms_policy_chunk& chunk = told->chunks[id];
            if (chunk.bytes > 0 && chunk.address - region.address < region.bytes) chunks.push_back(id);
        }
        std::ranges::sort(chunks, {}, [&](engine::ChunkId id) { return told->chunks[id].address; });
        return chunks;
    }
    Ids named() const { return {told->named, told->named + told->work.count}; }
    Accesses accesses() const { return {told->access, told->access + told->work.count}; }

    Scratch scratch;
    std::string path = scratch.path("recorder.so");
    recorder* told = nullptr;
};

std::function<void(const lms_policy_request&)> asked;

// Buffers of 16 granules, one more than fit at once: so all work is looked at.
struct Told : Plugin, Scene {
    explicit Told(RigOptions options = options_of(Safety::Opaque)) : Scene(with(options, path)) {
        for (int i = 0; i < kCount; ++i) make(16);
        rig.drain();
    }
    ~Told() {
        told->asked = nullptr;
        asked = nullptr;
    }
    Told(const Told&) = delete;
    Told& operator=(const Told&) = delete;

    static RigOptions with(RigOptions options, const std::string& policy) {
        options.policy = policy;
        return options;
    }
    // `look` is called each time that a victim is asked for.
    void when_asked(std::function<void(const lms_policy_request&)> look) {
        asked = std::move(look);
        told->asked = [](const lms_policy_request* request) { asked(*request); };
    }
    // A kernel that reads a buffer.
    void use(std::size_t index) {
        Bytes bytes;
        REQUIRE(rig.read(stream, regions[index], bytes) == CUDA_SUCCESS);
    }
    void round() {
        for (std::size_t i = 0; i < regions.size(); ++i) use(i);
    }
    void submit(std::vector<Address> names, std::vector<session::Range> ranges,
                std::vector<Address> reads = {}, const void* code = nullptr, CUstream where = nullptr) {
        Job job{where ? where : stream, std::move(names), std::move(ranges), false,
                [](Memory&) { return true; }};
        job.reads = std::move(reads);
        job.code = code;
        REQUIRE(rig.submit(job) == CUDA_SUCCESS);
    }
    static constexpr int kCount = 5;
};

lms_policy_candidate candidate(const lms_policy_request& request, engine::ChunkId chunk) {
    lms_policy_candidate told{};
    told.size = sizeof told;
    CHECK(request.candidate(request.context, chunk, &told) != 0);
    return told;
}

lms_policy_links links(const lms_policy_request& request) {
    lms_policy_links told{};
    told.size = sizeof told;
    CHECK(request.links(request.context, &told) != 0);
    return told;
}

std::uint64_t overruled() {
    return trace::counters().victims_overruled.load();
}

}  // namespace

TEST_CASE("policy: chunks are told with their addresses and their place in the allocation") {
    Told scene;
    const auto check = [&](const Plugin& plugin) {
        for (const Region& region : scene.regions) {
            const Ids chunks = plugin.chunks_of(region);
            REQUIRE(chunks.size() > 1);
            std::uint64_t offset = 0;
            for (const engine::ChunkId id : chunks) {
                const lms_policy_chunk& chunk = plugin.told->chunks[id];
                CHECK(chunk.address == region.address + offset);
                CHECK(chunk.offset == offset);
                CHECK(chunk.allocation_bytes == region.bytes);
                CHECK(chunk.allocation == plugin.told->chunks[chunks.front()].allocation);
                offset += chunk.bytes;
            }
            CHECK(offset == region.bytes);
        }
    };
    check(scene);
    REQUIRE(scene.rig.session().free(scene.regions[1].address) == CUDA_SUCCESS);
    scene.regions.erase(scene.regions.begin() + 1);
    scene.expected.erase(scene.expected.begin() + 1);
    scene.make(13);
    check(scene);
    // One that comes later is told the same.
    const Plugin other;
    scene.rig.session().rank_by(policy::Host::create(other.path, {}, 0));
    check(other);
    scene.check();
}

TEST_CASE("policy: work is told with its stream, its code and how it touches each chunk") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        Told scene(options_of(Safety::Opaque, 1, maps_host));
        const Region& a = scene.regions[0];
        const Region& b = scene.regions[1];
        const Ids of_a = scene.chunks_of(a);
        const Ids of_b = scene.chunks_of(b);
        const std::uint64_t bytes = scene.told->chunks[of_a[0]].bytes;
        const auto all = [](const Ids& chunks, unsigned access) { return Accesses(chunks.size(), access); };

        const int kernel = 0;
        const int other_kernel = 0;
        scene.submit({b.address}, {}, {a.address}, &kernel);
        Ids both = of_b;
        both.insert(both.end(), of_a.begin(), of_a.end());
        CHECK(scene.named() == both);
        Accesses expected = all(of_b, LMS_ACCESS_UNKNOWN);
        expected.insert(expected.end(), of_a.size(), LMS_ACCESS_READ);
        CHECK(scene.accesses() == expected);
        const std::uint64_t code = scene.told->work.code;
        const std::uint64_t stream = scene.told->work.stream;
        CHECK(code != 0);
        scene.submit({a.address}, {}, {}, &other_kernel);
        CHECK(scene.told->work.code != code);
        CHECK(scene.told->work.code != 0);
        CHECK(scene.told->work.stream == stream);
        scene.submit({b.address}, {}, {}, &kernel, scene.rig.stream());
        CHECK(scene.told->work.code == code);
        CHECK(scene.told->work.stream != stream);

        const auto touched = [&](std::vector<Address> names, std::vector<session::Range> ranges) {
            scene.submit(std::move(names), std::move(ranges));
            CHECK(scene.told->work.code == 0);
            CHECK(scene.told->work.stream == stream);
            return scene.accesses();
        };
        const session::Range whole{.address = a.address, .bytes = a.bytes, .overwritten = true};
        const session::Range half{.address = a.address, .bytes = bytes / 2, .overwritten = true};
        const session::Range source{.address = a.address + bytes / 2, .bytes = bytes / 2, .only_read = true};
        const session::Range rest{.address = a.address, .bytes = bytes};
        CHECK(touched({}, {whole}) == all(of_a, LMS_ACCESS_WRITTEN | LMS_ACCESS_WHOLE));
        CHECK(touched({}, {half}) == Accesses{LMS_ACCESS_WRITTEN});
        CHECK(touched({}, {source}) == Accesses{LMS_ACCESS_READ});
        CHECK(touched({}, {half, source}) == Accesses{LMS_ACCESS_UNKNOWN});
        CHECK(touched({}, {source, half}) == Accesses{LMS_ACCESS_UNKNOWN});
        CHECK(touched({}, {rest}) == Accesses{LMS_ACCESS_UNKNOWN});
        CHECK(touched({a.address}, {whole}) == all(of_a, LMS_ACCESS_UNKNOWN));
        // Not of a whole buffer: the last chunk is touched in part.
        const session::Range most{.address = a.address, .bytes = a.bytes - 1, .overwritten = true};
        expected = all(of_a, LMS_ACCESS_WRITTEN | LMS_ACCESS_WHOLE);
        expected.back() = LMS_ACCESS_WRITTEN;
        CHECK(touched({}, {most}) == expected);
        scene.rig.drain();
    }
}

TEST_CASE("policy: of a candidate it is told what it takes to let it go") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        RigOptions options = options_of(Safety::Opaque, 3, maps_host);
        Told scene(options);
        for (int i = 0; i < 3; ++i) scene.round();
        // All that is there has come in, and been read since. Now one is written, which is there then.
        const std::size_t written = 4;
        Ids dirty = scene.chunks_of(scene.regions[written]);
        REQUIRE(scene.place(written) == Place::Device);
        scene.submit({scene.regions[written].address}, {});
        scene.rig.drain();
        REQUIRE(scene.rig.session().free(scene.regions[3].address) == CUDA_SUCCESS);
        scene.regions.erase(scene.regions.begin() + 3);
        scene.expected.erase(scene.expected.begin() + 3);
        // Smaller: of the chunks before one is gone. It is written, too.
        const Ids made = scene.chunks_of(scene.regions[scene.make(14)]);
        dirty.insert(dirty.end(), made.begin(), made.end());
        engine::ChunkId gone = 0;
        while (scene.told->chunks[gone].bytes > 0) ++gone;
        scene.rig.drain();
        int seen = 0;
        int seen_dirty = 0;
        scene.when_asked([&](const lms_policy_request& request) {
            for (engine::ChunkId id = 0; id < RECORDER_CHUNKS; ++id) {
                if (!scene.told->since[id] || !request.eligible(request.context, id)) continue;
                const lms_policy_candidate told = candidate(request, id);
                const bool is_dirty = std::ranges::count(dirty, id) > 0;
                CHECK(told.bytes == scene.told->chunks[id].bytes);
                CAPTURE(id);
                CAPTURE(scene.told->chunks[id].address - scene.regions[0].address);
                CHECK(told.clean == (is_dirty ? 0u : 1u));
                CHECK(told.idle_in_ns == 0);
                ++seen;
                seen_dirty += is_dirty;
            }
            lms_policy_candidate untold{};
            untold.size = sizeof untold;
            CHECK(request.candidate(request.context, gone, &untold) == 0);
            CHECK(request.candidate(request.context, 1u << 20, &untold) == 0);
            CHECK(untold.bytes == 0);
            // Of what is told later a policy that was built before gets none.
            lms_policy_candidate small{};
            small.size = offsetof(lms_policy_candidate, idle_in_ns);
            small.idle_in_ns = 7;
            CHECK(request.candidate(request.context, dirty.front(), &small) != 0);
            CHECK(small.size == offsetof(lms_policy_candidate, idle_in_ns));
            CHECK(small.bytes == scene.told->chunks[dirty.front()].bytes);
            CHECK(small.idle_in_ns == 7);
        });
        REQUIRE(scene.place(0) == Place::Host);
        for (const std::size_t i : {0, 1}) scene.use(i);
        CHECK(seen > 0);
        CHECK(seen_dirty > 0);
        scene.told->asked = nullptr;
        scene.check();
    }
}

TEST_CASE("policy: a candidate that unfinished work uses is not told to be idle") {
    Told scene;
    scene.round();
    const Gate open = closed();
    const std::size_t busy = 4;
    REQUIRE(scene.place(busy) == Place::Device);
    REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), busy, open, true)) == CUDA_SUCCESS);
    scene.changed(busy);
    int seen = 0;
    scene.when_asked([&](const lms_policy_request& request) {
        if (*open) return;
        for (const engine::ChunkId id : scene.chunks_of(scene.regions[busy])) {
            CHECK(request.eligible(request.context, id) == (request.purpose == LMS_PURPOSE_WAIT));
            CHECK(candidate(request, id).idle_in_ns == LMS_NOT_KNOWN);
            CHECK(candidate(request, id).clean == 0);
            ++seen;
        }
    });
    for (const std::size_t i : {0, 1, 2}) REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
    CHECK(seen > 0);
    *open = true;
    scene.told->asked = nullptr;
    scene.check();
}

TEST_CASE("policy: of the copies it is told what is queued each way, and how fast they go") {
    std::uint64_t most_in = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        Told scene(options_of(Safety::Opaque, seed));
        scene.round();
        for (std::size_t i = 0; i < scene.regions.size(); ++i) scene.submit({scene.regions[i].address}, {});
        scene.rig.drain();
        const std::uint64_t chunk = scene.told->chunks[scene.chunks_of(scene.regions[0]).front()].bytes;
        // Of what goes for one and the same request the copies are enqueued together, after it.
        std::uint64_t chosen = 0;
        std::uint64_t need = 0;
        int grew = 0;
        scene.when_asked([&](const lms_policy_request& request) {
            const lms_policy_links told = links(request);
            CHECK(told.in_bytes_per_s == 0);
            CHECK(told.out_bytes_per_s == 0);
            const bool goes_on = request.need_bytes == need - chunk;
            if (goes_on) {
                CHECK(told.queued_out_bytes == chosen + chunk);
                ++grew;
            }
            chosen = told.queued_out_bytes;
            need = request.need_bytes;
            CHECK(told.queued_in_bytes % chunk == 0);
            CHECK(told.queued_in_bytes <= 16 * 64);
            most_in = std::max(most_in, told.queued_in_bytes);
        });
        REQUIRE(scene.need(0, scene.stream) == CUDA_SUCCESS);
        CHECK(grew > 0);
        for (const std::size_t i : {1, 2}) REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
        // Of 128 bytes in a microsecond each.
        scene.told->asked = nullptr;
        scene.rig.gpu().copies_take(1'000);
        scene.round();
        lms_policy_links last{};
        scene.when_asked([&](const lms_policy_request& request) { last = links(request); });
        scene.round();
        CHECK(last.in_bytes_per_s == chunk * 1'000'000);
        CHECK(last.out_bytes_per_s == chunk * 1'000'000);
        scene.told->asked = nullptr;
        scene.check();
    }
    CHECK(most_in > 0);
}

TEST_CASE("policy: it is told how many works ago the GPU had nothing to run for want of copies in") {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        Told scene(options_of(Safety::Opaque, seed));
        std::vector<std::uint64_t> since;
        scene.when_asked(
            [&](const lms_policy_request& request) { since.push_back(links(request).works_since_wait); });
        // Of five buffers four fit: each of these brings one in.
        std::size_t i = 0;
        const auto next = [&](std::uint64_t expected) {
            since.clear();
            REQUIRE(scene.need(i++ % Told::kCount, scene.stream) == CUDA_SUCCESS);
            REQUIRE_FALSE(since.empty());
            for (const std::uint64_t each : since) CHECK(each == expected);
        };
        next(LMS_NOT_KNOWN);
        next(1);
        next(1);
        // Another stream's work runs, of a buffer that is there.
        scene.rig.drain();
        const Gate gate = closed();
        REQUIRE(scene.rig.submit(scene.late_write(scene.rig.stream(), 1, gate, true)) == CUDA_SUCCESS);
        scene.changed(1);
        next(2);
        next(3);
        *gate = true;
        scene.rig.drain();
        next(4);
        next(1);
        scene.told->asked = nullptr;
        scene.check();
    }
}

namespace {

// Where a program has its buffers, launch by launch; the bytes are right.
std::vector<std::uint64_t> places_of(Scene& scene) {
    std::vector<std::uint64_t> on_device;
    for (const std::size_t i : {0, 3, 1, 0, 4, 2, 0, 1, 4, 0, 3}) {
        REQUIRE(scene.need(i, scene.stream) == CUDA_SUCCESS);
        scene.rig.drain();
        for (const Region& region : scene.regions) on_device.push_back(scene.rig.on_device(region));
    }
    scene.check();
    return on_device;
}

}  // namespace

TEST_CASE("policy: where it names no chunk, or one that may not go, lru's goes, and that is counted") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const RigOptions options = options_of(Safety::Opaque, 7, maps_host);
        Scene lru(options);
        for (int i = 0; i < Told::kCount; ++i) lru.make(16);
        lru.rig.drain();
        const std::vector<std::uint64_t> expected = places_of(lru);
        for (const recorder_answer answer : {RECORDER_NONE, RECORDER_ABSENT, RECORDER_OLDEST}) {
            CAPTURE(answer);
            Plugin plugin;
            plugin.told->answer = answer;
            Scene scene(Told::with(options, plugin.path));
            const std::uint64_t before = overruled();
            for (int i = 0; i < Told::kCount; ++i) scene.make(16);
            scene.rig.drain();
            const std::vector<std::uint64_t> places = places_of(scene);
            CHECK(plugin.told->calls[RECORDER_VICTIM] > 0);
            if (answer == RECORDER_OLDEST) {
                CHECK(places != expected);
                CHECK(overruled() == before);
            } else {
                CHECK(places == expected);
                CHECK(overruled() > before);
            }
        }
    }
}

TEST_CASE("policy: one whose calls take too long is not asked again, on any GPU, and lru serves") {
    constexpr unsigned kTooLong = 1100, kNowAndThen = 300;
    for (const recorder_function function : {RECORDER_VICTIM, RECORDER_UPCOMING, RECORDER_WORK}) {
        CAPTURE(function);
        const RigOptions options = options_of(Safety::Opaque, 5);
        Scene lru(options);
        for (int i = 0; i < Told::kCount; ++i) lru.make(16);
        const Plugin plugin;
        Scene scene(Told::with(options, plugin.path));
        Scene other(Told::with(options, plugin.path));
        // The calls that make the buffers full; what each is then told is the same.
        plugin.told->answer = RECORDER_NONE;
        for (int i = 0; i < Told::kCount; ++i) scene.make(16);
        for (int i = 0; i < Told::kCount; ++i) other.make(16);
        log::configure(log::Level::Warn, plugin.scratch.path("log"));
        plugin.told->sleep_ms[function] = kNowAndThen;
        (void)places_of(other);
        CHECK(plugin.told->sleep_ms[function] == 0);
        CHECK(plugin.scratch.get("log") == "");
        plugin.told->sleep_ms[function] = kTooLong;
        CHECK(places_of(scene) == places_of(lru));
        CHECK(plugin.told->sleep_ms[function] == 0);
        const std::uint64_t calls =
            std::accumulate(std::begin(plugin.told->calls), std::end(plugin.told->calls), std::uint64_t{0});
        (void)places_of(scene);
        (void)places_of(other);
        CHECK(std::accumulate(std::begin(plugin.told->calls), std::end(plugin.told->calls),
                              std::uint64_t{0}) == calls);
        const std::string told = plugin.scratch.get("log");
        CHECK(told.starts_with("lms: policy recorder takes too long (its last call of "));
        CHECK(told.ends_with("; lru replaces it\n"));
        CHECK(std::ranges::count(told, '\n') == 1);
        log::configure(log::Level::Off, "");
        std::string problem;
        CHECK(policy::find(plugin.path, problem) == nullptr);
        CHECK(problem == plugin.path + " took too long before");
    }
}

}  // namespace lms::fake
