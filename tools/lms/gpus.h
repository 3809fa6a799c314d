// GPUs that a run can be planned for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lms::tool {

// How fast a GPU's kernels are: published figures, by which their times are modelled.
struct KernelSpeed {
    std::string_view id;
    unsigned multiprocessors = 0;
    double f32_per_s = 0;     // operations of 32-bit floats; a multiply-add is two
    double matrix_per_s = 0;  // of the matrix units, 16-bit inputs
    double bytes_per_s = 0;   // of its memory
};

struct TargetGpu {
    std::string title;
    std::uint64_t memory_bytes = 0;
    double in_bytes_per_s = 0;  // that copies reach
    double out_bytes_per_s = 0;
    std::optional<KernelSpeed> speed;  // none: its name is not in the table
};

std::span<const TargetGpu> known_gpus();
// By id ("rtx4090"), by title, or by the name that the driver gives it ("NVIDIA GeForce RTX 4090"); else
// null.
const TargetGpu* find_gpu(std::string_view name);

// Of "NAME", a known one, or "NAME,MEMORY,LINK[,LINK]": links in 1e9 bytes a second, to the GPU and from it.
// A known name gives the kernels' speed. `problem`: one line where the text is neither.
std::optional<TargetGpu> parse_gpu(const std::string& text, std::string& problem);

}  // namespace lms::tool
