// The PTX and native code in what a program hands to the driver as code: plain, a fat binary, or the wrapper
// that nvcc leaves around one or several.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lms::code {

// Code as it was found, which may be compressed.
struct PackedCode {
    enum class Coding : std::uint8_t { Plain, Lz4, Zstd };
    Coding coding = Coding::Plain;
    std::uint64_t plain_bytes = 0;
    std::string bytes;
};

// Copies the PTX out of `image`. Of each fat binary in it: what one of `gpus` may run, each a compute
// capability (86 is 8.6), and what was compiled like the native code that one of them runs. If there is none
// of these: the PTX for the newest GPUs. Without `gpus`: all. Empty where there is native code alone. The
// driver has accepted the image, so its own headers are believed; without `bytes` it is as long as they say.
std::vector<PackedCode> find_ptx(const void* image, std::optional<std::uint64_t> bytes = std::nullopt,
                                 std::span<const unsigned> gpus = {});

// Copies native code out of `image`; otherwise as find_ptx. Of a fat binary, what one of `gpus` can run:
// code for its own major version, and no later minor one. With none given, all.
std::vector<PackedCode> find_cubins(const void* image, std::optional<std::uint64_t> bytes = std::nullopt,
                                    std::span<const unsigned> gpus = {});

// True if the image holds PTX for the same architecture and feature set as the native code that `gpus` load,
// or holds no native code for them. For another architecture the same source may give another kernel. Without
// `gpus`: any code.
bool ptx_is_like_native(const void* image, std::optional<std::uint64_t> bytes,
                        std::span<const unsigned> gpus);

// Nothing where it does not unpack to what its header said.
std::optional<std::string> unpack(const PackedCode& code);

}  // namespace lms::code
