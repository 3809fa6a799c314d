// Drivers that do what real ones may do against this project's hopes (SIMCUDA_PERVERSE): programs run right,
// or are refused clearly. And what the shim finds out before it relies on anything.
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/entry/gate.h"
#include "tests/entry/rig.h"
#include "tests/support/process.h"
#include "tests/support/scratch.h"

using namespace rig;

namespace {

std::uint32_t word(std::uint32_t buffer, std::uint32_t at) {
    return (buffer * kWords + at) * 2654435761u;
}

constexpr std::uint32_t kMostBuffers = 12;  // where there is room for seven

// More buffers, to as many, or as many as are to be had.
void fill_up(std::vector<CUdeviceptr>& buffers, std::size_t most) {
    while (buffers.size() < most) {
        CUdeviceptr address = 0;
        const CUresult made = CU(cuMemAlloc_v2)(&address, kBuffer);
        if (made == CUDA_ERROR_OUT_OF_MEMORY) break;
        EXPECT(made == CUDA_SUCCESS);
        buffers.push_back(address);
    }
}

void walk_over(const std::vector<CUdeviceptr>& buffers) {
    EXPECT(buffers.size() >= 5);
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
        std::vector<std::uint32_t> words(kWords);
        for (std::uint32_t at = 0; at < kWords; ++at) words[at] = word(i, at);
        OK(cuMemcpyHtoD_v2, buffers[i], words.data(), kBuffer);
    }
    constexpr std::uint32_t kRounds = 3;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
        for (const CUdeviceptr buffer : buffers) {
            EXPECT(launch("add", kWords, nullptr, buffer, buffer, round + 1, kWords) == CUDA_SUCCESS);
            OK(cuMemsetD32Async, buffer + kBuffer / 2, round, 16, nullptr);
        }
    }
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
        std::vector<std::uint32_t> words(kWords);
        OK(cuMemcpyDtoH_v2, words.data(), buffers[i], kBuffer);
        bool right = true;
        for (std::uint32_t at = 0; at < kWords; ++at) {
            const bool set = at >= kWords / 2 && at < kWords / 2 + 16;
            right = right && words[at] == (set ? kRounds - 1 : word(i, at) + 1 + 2 + 3);
        }
        EXPECT(right);
    }
    for (const CUdeviceptr buffer : buffers) OK(cuMemFree_v2, buffer);
}

}  // namespace

BODY(a_walk_over_too_much_memory) {
    const Gpu gpu;
    std::vector<CUdeviceptr> buffers;
    fill_up(buffers, kMostBuffers);
    walk_over(buffers);
}

namespace {

// As programs let the next kernel of a stream begin before the last has ended, in clusters of so many blocks.
CUresult add_programmatically(CUdeviceptr buffer, std::uint32_t added, unsigned cluster = 1) {
    CUlaunchAttribute attributes[2] = {};
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[0].value.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[1].value.clusterDim = {cluster, 1, 1};
    CUlaunchConfig config{};
    config.gridDimX = kWords / 256;
    config.blockDimX = 256;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.attrs = attributes;
    config.numAttrs = 2;
    void* parameters[] = {&buffer, &buffer, &added, const_cast<std::uint32_t*>(&kWords)};
    return CU(cuLaunchKernelEx)(&config, kernel("add"), parameters, nullptr);
}

}  // namespace

BODY(programmatic_launches_over_too_much_memory) {
    const Gpu gpu;
    std::vector<CUdeviceptr> buffers;
    fill_up(buffers, kMostBuffers);
    for (std::uint32_t i = 0; i < kMostBuffers; ++i) OK(cuMemsetD32Async, buffers[i], i, kWords, nullptr);
    OK(cuCtxSynchronize);
    constexpr std::uint32_t kRounds = 4;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
        for (const CUdeviceptr buffer : buffers) EXPECT(add_programmatically(buffer, 1) == CUDA_SUCCESS);
    }
    // The simulated GPU has no clusters: it is asked for one.
    EXPECT(add_programmatically(buffers[0], 1, 2) == CUDA_ERROR_NOT_SUPPORTED);
    OK(cuCtxSynchronize);
    for (std::uint32_t i = 0; i < kMostBuffers; ++i) {
        std::vector<std::uint32_t> words(kWords);
        OK(cuMemcpyDtoH_v2, words.data(), buffers[i], kBuffer);
        EXPECT(words == std::vector<std::uint32_t>(kWords, i + kRounds));
    }
}

// Where copies queue behind it, nothing can be tried before it opens.
BODY(a_walk_over_memory_that_was_filled_beside_a_gate) {
    const Gpu gpu;
    CUstream stream = nullptr;
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    Gate gate;
    gate.hold_up(stream);
    std::vector<CUdeviceptr> buffers;
    fill_up(buffers, kMostBuffers);
    gate.open();
    OK(cuStreamSynchronize, stream);
    walk_over(buffers);
}

namespace {

// What a run of the walk says. `cache` is where answers are kept for later ones.
std::string walk(const std::string& cache, Environment environment,
                 const std::string& body = "a_walk_over_too_much_memory") {
    environment.emplace("LMS_HOST_MAPPING", "auto");
    environment["XDG_CACHE_HOME"] = cache;
    environment["SIMCUDA_CACHE"] = support::build_dir() + "/entry/kernels-of-trials";
    const Outcome outcome = run(body, Driver::Simulated, environment);
    CHECK(outcome.failures == "");
    return outcome.err;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != text.npos;
}

struct Case {
    const char* perverse;
    const char* apart;   // what is said where a process apart is asked first
    const char* inside;  // and where not; null: the program would be the first to find out
};
constexpr const char* kDies = "cannot use host memory here (the driver ended the process that tried it)";
constexpr const char* kNoKernels = "cannot use host memory here (not in place: a kernel in place";
constexpr const char* kLost = "keeps its size: a trial of moves lost contents";
constexpr Case kCases[] = {
    {"host-create-crashes", kDies, nullptr},
    {"host-copies-fail", "cannot use host memory here (not in place: a copy out",
     "for a trial of host memory failed (a copy out)"},
    {"host-sets-lost", "cannot use host memory here (not in place: a set in place",
     "for a trial of host memory failed (a set in place)"},
    {"moves-lose", kLost, kLost},
    {"copies-queue", "", ""},
    {"unmap-drains", "", ""},
    {"access-not-ready", "", ""},
    {"launches-overlap", "", ""},
    {"one-queue", "", ""},
    {"host-copies-early", "", ""},
    {"host-writes-lost", kNoKernels, nullptr},
    {"host-atomics-lost", kNoKernels, nullptr},
    {"copies-block", "", ""},
    {"one-bus-address", "", ""},
    {"one-bus-address,host-create-crashes", kDies, nullptr},
    {"less-than-free", "", ""},
    {"less-accessible", "", ""},
    {"mixed-copies-fail", "cannot use host memory here (not in place: a copy of host and device memory",
     nullptr},
    {"mapped-copies-early", "cannot use host memory here (not in place: a copy behind a kernel in place",
     nullptr},
    {"mappings-apart", "", ""},
    {"copies-queue,unmap-drains,access-not-ready,host-sets-lost", "not in place", "a set in place"},
    {"all", kDies, nullptr},
};

}  // namespace

TEST_CASE("perverse: results are right, or memory is out, and a line says what is wrong with the driver") {
    for (const Case& each : kCases) {
        CAPTURE(each.perverse);
        const Scratch cache;
        const std::string apart = walk(cache.path(), {{"SIMCUDA_PERVERSE", each.perverse}});
        CAPTURE(apart);
        CHECK(has(apart, each.apart));
        if (each.inside) {
            const std::string inside =
                walk(cache.path(), {{"SIMCUDA_PERVERSE", each.perverse}, {"LMS_HOST_MAPPING", "on"}});
            CAPTURE(inside);
            CHECK(has(inside, each.inside));
        }
        walk(cache.path(), {{"SIMCUDA_PERVERSE", each.perverse}, {"SIMCUDA_HOST_VMM", "0"}});
        walk(cache.path(), {{"SIMCUDA_PERVERSE", each.perverse}, {"LMS_HOST_MAPPING", "off"}});
    }
}

TEST_CASE("perverse: what a trial under a profiler says is kept for no later run") {
    for (const bool profiled : {true, false}) {
        CAPTURE(profiled);
        const Scratch cache;
        Environment environment = {{"SIMCUDA_PERVERSE", "host-create-crashes"}};
        if (profiled) environment["NV_TPS_LAUNCH_TOKEN"] = "Interactive Profile";
        CHECK(has(walk(cache.path(), environment), kDies));
        // The simulated driver's kernels are elsewhere.
        CHECK(std::filesystem::exists(cache.path("lmsshim")) == !profiled);
    }
}

namespace {

// How often the driver was called from the trial's reservation of addresses to when these were given back.
std::map<std::string, int> calls_of_trial(const std::string& log) {
    std::map<std::string, int> calls;
    std::istringstream lines(support::read_file(log));
    for (std::string prefix, call, rest; lines >> prefix >> call && std::getline(lines, rest);) {
        if (call == "cuMemAddressFree" && calls["cuMemcpyAsync"] > 0) break;
        if (call == "cuMemAddressReserve") calls.clear();
        ++calls[call];
    }
    return calls;
}

}  // namespace

// With calls of some 100 microseconds: a few milliseconds.
TEST_CASE("perverse: a trial of moves is a few dozen calls and less than a mebibyte") {
    const Scratch scratch;
    for (const std::string host_mapping : {"0", "1"}) {
        CAPTURE(host_mapping);
        const std::string log = scratch.path("log" + host_mapping);
        walk(scratch.path(),
             {{"SIMCUDA_LOG", log}, {"SIMCUDA_HOST_VMM", host_mapping}, {"LMS_HOST_MAPPING", "on"}});
        auto calls = calls_of_trial(log);
        CHECK(calls["cuMemcpyAsync"] >= 8);
        CHECK(calls["cuMemcpyAsync"] + calls["cuMemsetD32Async"] <= 18);  // of 32 KiB each
        CHECK(calls["cuMemMap"] + calls["cuMemSetAccess"] + calls["cuMemUnmap"] <= 15);
        CHECK(calls["cuMemCreate"] <= 1);
        CHECK(calls["cuEventRecord"] <= 21);
    }
}

TEST_CASE("perverse: moves are tried also where the GPU has no memory left for anything else") {
    const Scratch cache;
    for (const char* host_mapping : {"0", "1"}) {
        const std::string said = walk(
            cache.path(),
            {{"SIMCUDA_PERVERSE", "moves-lose"}, {"SIMCUDA_HOST_VMM", host_mapping}, {"LMS_RESERVE", "0"}});
        CAPTURE(said);
        CHECK(has(said, kLost));
    }
}

TEST_CASE("perverse: programmatic launches wait for what is moved for them, and are waited for") {
    for (const std::string host_mapping : {"0", "1"}) {
        for (const std::string seed : {"1", "2", "3"}) {
            CAPTURE(host_mapping);
            CAPTURE(seed);
            const Scratch cache;
            walk(cache.path(),
                 {{"SIMCUDA_PERVERSE", "launches-overlap"},
                  {"SIMCUDA_HOST_VMM", host_mapping},
                  {"SIMCUDA_SEED", seed}},
                 "programmatic_launches_over_too_much_memory");
        }
    }
}

TEST_CASE("perverse: moves that could not be tried to an end are tried again before the first one") {
    const Scratch cache;
    const std::string body = "a_walk_over_memory_that_was_filled_beside_a_gate";
    const std::string moves = walk(cache.path(), {{"SIMCUDA_PERVERSE", "moves-lose,copies-queue"}}, body);
    CAPTURE(moves);
    CHECK(has(moves, kLost));
    CHECK(has(moves, "M in host memory; report it\n"));
    const std::string sets =
        walk(cache.path(), {{"SIMCUDA_PERVERSE", "host-sets-lost,copies-queue"}, {"LMS_HOST_MAPPING", "on"}},
             body);
    CAPTURE(sets);
    CHECK(has(sets, "evicted memory is no longer used in place"));
}

TEST_CASE(
    "host mapping: what ended a process apart is not asked again, unless others could have written that "
    "down") {
    const Scratch cache;
    CHECK(has(walk(cache.path(), {{"SIMCUDA_PERVERSE", "host-create-crashes"}}), kDies));
    CHECK(has(walk(cache.path(), {}), kDies));
    for (const auto& file : std::filesystem::directory_iterator(cache.path() + "/lmsshim"))
        CHECK(::chmod(file.path().c_str(), 0666) == 0);
    CHECK_FALSE(has(walk(cache.path(), {}), kDies));
}

TEST_CASE("host mapping: off asks nobody") {
    const Scratch cache;
    const std::string said =
        walk(cache.path(), {{"SIMCUDA_PERVERSE", "host-create-crashes"}, {"LMS_HOST_MAPPING", "off"}});
    CHECK_FALSE(has(said, kDies));
    CHECK(has(said, "GPU 0 does not map host memory"));
    CHECK_FALSE(std::filesystem::exists(cache.path() + "/lmsshim"));
}

namespace {

// Changes a byte of each page-aligned copy of `content` that this process has, but for `content` itself.
int spoil(const std::vector<std::uint8_t>& content) {
    constexpr std::size_t kPage = 4096;
    int spoilt = 0;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long begin = 0, end = 0;
        char rights[5] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, rights) != 3) continue;
        if (rights[0] != 'r' || rights[1] != 'w' || end - begin > 64 * kMiB) continue;
        for (unsigned long at = begin; at + kPage <= end; at += kPage) {
            auto* const page = reinterpret_cast<std::uint8_t*>(at);
            const bool own = page >= content.data() && page < content.data() + content.size();
            if (own || std::memcmp(page, content.data(), kPage) != 0) continue;
            page[100] ^= 1;
            ++spoilt;
        }
    }
    return spoilt;
}

}  // namespace

BODY(a_byte_changes_in_evicted_memory) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(spoil(pattern(kBuffer, 1)) > 0);
    rig::bring_in(a.at(), kBuffer, nullptr);
    OK(cuCtxSynchronize);
}

TEST_CASE("guards: what changes in host memory while it is evicted is named, and the verdict counts it") {
    const Outcome outcome = run("a_byte_changes_in_evicted_memory", Driver::Simulated, {{"LMS_CHECK", "1"}});
    CAPTURE(outcome.err);
    CHECK(outcome.failures == "");
    CHECK(has(outcome.err, " changed in host memory while they were evicted\n"));
    CHECK(has(outcome.err, " evicted chunks came back changed: "));
}

BODY(memory_that_nobody_wrote_is_read) {
    const Gpu gpu;
    Crowd crowd;
    crowd.press();
    const std::vector<std::uint8_t> poison(kBuffer, 0xff);
    const Buffer by_copy(kBuffer), copied(kBuffer), by_host(kBuffer);
    OK(cuMemcpyDtoDAsync_v2, copied.at(), by_copy.at(), kBuffer, nullptr);
    OK(cuCtxSynchronize);
    EXPECT(copied.read() == poison);
    EXPECT(by_host.read() == poison);
}

TEST_CASE("guards: what nobody wrote reads as one pattern, not as what other buffers held") {
    const auto failures = [](const char* check) {
        return run("memory_that_nobody_wrote_is_read", Driver::Simulated, {{"LMS_CHECK", check}}).failures;
    };
    CHECK(failures("1") == "");
    CHECK(failures("0") != "");
}

TEST_CASE("guards: a program that names all that it uses passes, with a verdict") {
    const Scratch cache;
    const std::string said = walk(cache.path(), {{"LMS_CHECK", "1"}});
    CAPTURE(said);
    CHECK(has(said, "evicted chunks came back intact"));
    CHECK_FALSE(has(said, "check: 0 evicted"));
    CHECK_FALSE(has(walk(cache.path(), {}), "check:"));
}
