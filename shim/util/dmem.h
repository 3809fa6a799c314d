// What the cgroups of this process leave it of a GPU's memory: the controller dmem, of Linux 6.14, by which
// MPS shares memory since CUDA 13.4
// (https://docs.nvidia.com/deploy/mps/latest/mpsv3-memory-partitioning.html).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lms::util {

// Bytes of `free_bytes` that may be taken. The driver says that these are free on the GPU at `bus`
// ("0000:65:00.0"; empty: not known).
// - Beyond dmem.max of any level an allocation fails.
// - A process with more than dmem.min may be ended where others lack memory. So beyond that no more is taken
//   than is left free for them.
// All of them where no limit is set. `root` is put before every path, for tests.
std::uint64_t dmem_free_bytes(std::uint64_t free_bytes, std::string_view bus, const std::string& root = "");

}  // namespace lms::util
