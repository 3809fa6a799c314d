// What the program can ask about a buffer: the same answer wherever its bytes are.
#include <algorithm>
#include <cstdlib>
#include <map>

#include "tests/entry/rig.h"
#include "tests/support/child.h"

using namespace rig;

namespace {

constexpr CUpointer_attribute kAsked[] = {
    CU_POINTER_ATTRIBUTE_CONTEXT,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    CU_POINTER_ATTRIBUTE_BUFFER_ID,
    CU_POINTER_ATTRIBUTE_IS_MANAGED,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    CU_POINTER_ATTRIBUTE_MAPPED,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
};

using Answers = std::map<int, std::uint64_t>;

Answers ask(CUdeviceptr address) {
    Answers answers;
    std::vector<CUpointer_attribute> which(std::begin(kAsked), std::end(kAsked));
    std::vector<std::uint64_t> values(which.size());
    std::vector<void*> data;
    for (std::uint64_t& value : values) data.push_back(&value);
    OK(cuPointerGetAttributes, static_cast<unsigned>(which.size()), which.data(), data.data(), address);
    for (std::size_t i = 0; i < which.size(); ++i) {
        answers[which[i]] = 0;
        OK(cuPointerGetAttribute, &answers[which[i]], which[i], address);
        EXPECT(answers[which[i]] == values[i]);
    }
    return answers;
}

}  // namespace

FAMILY_TEST("attributes: the same on the GPU, on the host, and partly on each") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Answers first = ask(a.at(5));
    EXPECT(first.at(CU_POINTER_ATTRIBUTE_RANGE_SIZE) == kBuffer);
    EXPECT(first.at(CU_POINTER_ATTRIBUTE_MAPPING_SIZE) == kBuffer);
    EXPECT(first.at(CU_POINTER_ATTRIBUTE_BUFFER_ID) != ask(b.at(5)).at(CU_POINTER_ATTRIBUTE_BUFFER_ID));
    EXPECT(first.at(CU_POINTER_ATTRIBUTE_BUFFER_ID) ==
           ask(a.at(kBuffer - 1)).at(CU_POINTER_ATTRIBUTE_BUFFER_ID));
    Crowd crowd;
    crowd.evict(a);
    EXPECT(ask(a.at(5)) == first);
    crowd.evict_half(a);
    EXPECT(ask(a.at(5)) == first);
    EXPECT(a.holds(1));
    EXPECT(ask(a.at(5)) == first);
}

FAMILY_TEST("attributes: a buffer in another's place has an identity of its own", "identities") {
    const Gpu gpu;
    std::vector<std::uint64_t> ids;
    CUdeviceptr before = 0;
    for (int i = 0; i < 3; ++i) {
        CUdeviceptr a = 0;
        OK(cuMemAllocAsync, &a, kBuffer, nullptr);
        EXPECT(before == 0 || a == before);
        before = a;
        ids.push_back(ask(a).at(CU_POINTER_ATTRIBUTE_BUFFER_ID));
        OK(cuMemFreeAsync, a, nullptr);
    }
    for (int i = 0; i < 3; ++i) {
        const Buffer a(kBuffer);
        ids.push_back(ask(a.at()).at(CU_POINTER_ATTRIBUTE_BUFFER_ID));
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) EXPECT(ids[i] != ids[j]);
    }
}

// The reserve is of what may be filled, a 64th of 16 MiB, and not of the whole GPU.
BODY(memory_under_a_limit) {
    const Gpu gpu;
    const Buffer a(kBuffer);
    std::size_t free = 0;
    std::size_t total = 0;
    OK(cuMemGetInfo_v2, &free, &total);
    EXPECT(total == 16 * kMiB);
    EXPECT(free > 14 * kMiB);
    EXPECT(free <= total - total / 64 - kBuffer);
}

TEST_CASE("attributes: free memory under LMS_LIMIT, of a GPU that is much larger") {
    run_both("memory_under_a_limit", Driver::Simulated, {{"SIMCUDA_MEMORY", "1G"}, {"LMS_LIMIT", "16M"}});
}

FAMILY_TEST("attributes: memory info of one kind alone is that of both") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    std::size_t free = 0, total = 0, free_alone = 1, total_alone = 1;
    OK(cuMemGetInfo_v2, &free, &total);
    OK(cuMemGetInfo_v2, &free_alone, nullptr);
    OK(cuMemGetInfo_v2, nullptr, &total_alone);
    EXPECT(free_alone == free);
    EXPECT(total_alone == total);
}

// Asks as a program does that sizes itself, maybe fills the GPU, and ends as it is told to.
BODY(memory_asked) {
    const Gpu gpu;
    std::size_t free = 0, total = 0;
    OK(cuDeviceTotalMem_v2, &total, gpu.device);
    if (std::getenv("ASKS_FREE")) OK(cuMemGetInfo_v2, &free, &total);
    std::vector<std::unique_ptr<Buffer>> buffers;
    const char* const takes = std::getenv("TAKES");
    for (int i = 0; takes && i < std::atoi(takes); ++i)
        buffers.push_back(std::make_unique<Buffer>(kBuffer, 1));
    buffers.clear();
    if (std::getenv("FILLS")) {
        const Buffer a(kBuffer, 1);
        Crowd crowd;
        crowd.evict(a);
    }
    // Nor does a child say it of its parent.
    EXPECT(support::in_child([] { std::exit(7); }) == 7);
    std::exit(std::atoi(std::getenv("ENDS_WITH")));
}

TEST_CASE(
    "attributes: a program that asks for memory and fails with no more than it was told of is told of "
    "LMS_MEMINFO, once") {
    const auto said = [](Environment environment) {
        environment.merge(Environment{{"LMS_HOST_LIMIT", "60M"}, {"ENDS_WITH", "3"}});
        return run("memory_asked", Driver::Simulated, environment).err;
    };
    const std::string line = "lms: the program ended with 3 after it had seen 4M of GPU memory";
    const std::string hint = "; if that is too little, LMS_MEMINFO=enlarged shows 64M\n";
    CHECK(said({}) == line + hint);
    const std::string of_both = said({{"ASKS_FREE", "1"}});
    CHECK(of_both.starts_with(line + ", 3."));
    CHECK(of_both.ends_with("M of it free" + hint));
    CHECK(std::ranges::count(of_both, '\n') == 1);
    CHECK(said({{"ENDS_WITH", "0"}}) == "");
    CHECK(said({{"ENDS_WITH", "0"}, {"LMS_LOG", "info"}}).find("ended with 0 after it had seen") !=
          std::string::npos);
    CHECK(said({{"LMS_MEMINFO", "enlarged"}}) == "");
    // One that takes what it is told there is fills the GPU too, for there is less for its buffers.
    const std::string taken = said({{"TAKES", "9"}});
    CHECK(taken.ends_with(line + hint));
    CHECK(said({{"TAKES", "9"}, {"ENDS_WITH", "0"}}).find("ended with") == std::string::npos);
    CHECK(said({{"TAKES", "11"}}).find("ended with") == std::string::npos);
    const std::string full = said({{"FILLS", "1"}});
    CHECK(full.find("GPU 0 is full: ") != std::string::npos);
    CHECK(full.find("ended with") == std::string::npos);
}
