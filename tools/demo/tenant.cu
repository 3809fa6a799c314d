#include "tenant.h"

#include <cstdio>
#include <vector>

#include "device_buffer.h"

namespace demo {

void hold_all_but(std::size_t leave) {
    // In pieces, because free memory need not be in one.
    constexpr std::size_t kPiece = std::size_t{32} << 20;
    std::vector<DeviceBuffer<char>> held;
    std::size_t free = 0, total = 0;
    for (;;) {
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        if (free < leave + kPiece) break;
        held.emplace_back("the tenant's memory", kPiece);
    }
    std::printf("holding %zu MiB, %zu MiB free\n", held.size() * (kPiece >> 20), free >> 20);
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
}

}  // namespace demo
