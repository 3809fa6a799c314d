// Allocation: of rows, and where a limit of the kernel is met.
#include <sys/mman.h>

#include <fstream>

#include "tests/entry/rig.h"

using namespace rig;

FAMILY_TEST("allocation: rows with a pitch, of more than the GPU has", "pitched") {
    const Gpu gpu;
    constexpr std::size_t kWidth = 1000, kRows = 500, kPitch = 1024;
    std::vector<CUdeviceptr> buffers(12);
    const auto rows = [](std::uint32_t seed) { return pattern(kWidth * kRows, seed); };
    CUDA_MEMCPY2D copy{};
    copy.srcPitch = copy.dstPitch = kWidth;
    copy.WidthInBytes = kWidth;
    copy.Height = kRows;
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
        std::size_t pitch = 0;
        OK(cuMemAllocPitch_v2, &buffers[i], &pitch, kWidth, kRows, 4);
        EXPECT(pitch == kPitch);
        const auto data = rows(i);
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = data.data();
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = buffers[i];
        copy.dstPitch = pitch;
        OK(cuMemcpy2D_v2, &copy);
    }
    std::vector<std::uint8_t> found(kWidth * kRows);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcPitch = kPitch;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = found.data();
    copy.dstPitch = kWidth;
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
        copy.srcDevice = buffers[i];
        OK(cuMemcpy2D_v2, &copy);
        EXPECT(found == rows(i));
        OK(cuMemFree_v2, buffers[i]);
    }
}

// Nearly all mappings that the kernel allows a process; few stay, for threads and the like.
class Crumbs {
  public:
    Crumbs() : bytes_(2 * kPage * limit()) {
        base_ = static_cast<char*>(
            mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        EXPECT(base_ != MAP_FAILED);
        // Each readable page parts what it is in.
        while (mprotect(base_ + 2 * kPage * parted_, kPage, PROT_READ) == 0) ++parted_;
        parted_ -= std::min<std::size_t>(parted_, 200);
        mprotect(base_ + 2 * kPage * parted_, bytes_ - 2 * kPage * parted_, PROT_NONE);
    }
    ~Crumbs() { munmap(base_, bytes_); }
    Crumbs(const Crumbs&) = delete;
    Crumbs& operator=(const Crumbs&) = delete;

  private:
    static constexpr std::size_t kPage = 4096;
    static std::size_t limit() {
        std::size_t mappings = 0;
        std::ifstream("/proc/sys/vm/max_map_count") >> mappings;
        return mappings;
    }

    std::size_t bytes_;
    char* base_ = nullptr;
    std::size_t parted_ = 0;
};

BODY(allocation_mappings) {
    const Gpu gpu;
    const Buffer first(kBuffer, 1);
    std::vector<CUdeviceptr> buffers;
    {
        const Crumbs crumbs;
        CUresult status = CUDA_SUCCESS;
        while (status == CUDA_SUCCESS && buffers.size() < 10000) {
            CUdeviceptr address = 0;
            status = CU(cuMemAlloc_v2)(&address, kGranule);
            if (status == CUDA_SUCCESS) buffers.push_back(address);
        }
        EXPECT(status == CUDA_ERROR_OUT_OF_MEMORY);
    }
    EXPECT(first.holds(1));
    for (const CUdeviceptr address : buffers) OK(cuMemFree_v2, address);
    const Buffer again(kBuffer, 2);
    EXPECT(again.holds(2));
    EXPECT(first.holds(1));
}

TEST_CASE("allocation: where the kernel allows no more mappings it fails, and the line names that limit") {
    // Where host memory is not mapped, memory for it is taken later.
    const Outcome outcome = run("allocation_mappings", Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}});
    CHECK(outcome.failures == "");
    CHECK(outcome.err.find("mappings that the kernel allows it; `sysctl vm.max_map_count=") !=
          std::string::npos);
    CHECK(outcome.err.find("LMS_HOST_LIMIT") == std::string::npos);
}

BODY(allocation_beyond_the_gpu) {
    const Gpu gpu;
    std::vector<std::unique_ptr<Buffer>> buffers;
    for (std::uint32_t i = 0; i < 10; ++i) buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
}

TEST_CASE("allocation: the first beyond the GPU is announced, with what is allocated and what fits") {
    for (const char* host_mapping : {"1", "0"}) {
        CAPTURE(host_mapping);
        const Outcome outcome =
            run("allocation_beyond_the_gpu", Driver::Simulated, {{"SIMCUDA_HOST_VMM", host_mapping}});
        CHECK(outcome.failures == "");
        const std::string line = "lms: GPU 0 is full: 4M allocated, 3.";
        CHECK_MESSAGE(outcome.err.find(line) != std::string::npos, outcome.err);
        CHECK(outcome.err.find(" is full: ") == outcome.err.rfind(" is full: "));
    }
}
