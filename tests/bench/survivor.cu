// One of two programs on a GPU, the other of which is killed: uses its buffers in turn, a launch each.
// survivor BUFFERS BUFFER_KIB: a line each time that its budget has changed, or whether all buffers are on
// the GPU: CLOCK_MONOTONIC in ns, the budget in bytes, and 1 or 0. It ends with its standard input.
#include <lms/lms.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/apps/check.h"

namespace {

// A word of each page, or a part of the buffer would do.
__global__ void touch(unsigned* buffer, std::size_t words) {
    for (std::size_t i = threadIdx.x * 1024; i < words; i += blockDim.x * 1024) ++buffer[i];
}

bool is_over() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, 0) != 0;
}

std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    std::vector<unsigned*> buffers(std::strtoul(argv[1], nullptr, 10));
    const std::size_t bytes = std::strtoul(argv[2], nullptr, 10) << 10;
    for (unsigned*& buffer : buffers) CHECK(cudaMalloc(&buffer, bytes));
    std::uint64_t budget = 0;
    bool all = false;
    while (!is_over()) {
        for (unsigned* const buffer : buffers) {
            touch<<<1, 32>>>(buffer, bytes / sizeof *buffer);
            lms_levels levels{};
            levels.size = sizeof levels;
            if (lms_get_levels(0, &levels) != 0) return 1;
            const bool all_now = levels.resident_bytes == levels.allocated_bytes;
            if (levels.budget_bytes == budget && all_now == all) continue;
            budget = levels.budget_bytes;
            all = all_now;
            std::printf("%llu %llu %d\n", static_cast<unsigned long long>(now_ns()),
                        static_cast<unsigned long long>(budget), all);
            std::fflush(stdout);
        }
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
    }
    return 0;
}
