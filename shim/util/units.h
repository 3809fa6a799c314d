// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lms::util {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;
inline constexpr std::uint64_t kTiB = 1024 * kGiB;

// The bytes that `text` means: a number, whole or decimal, and a suffix B, K, M, G or T (powers of 1,024; in
// either case, also as KB or KiB). Without a suffix the number counts `plain_unit` bytes. Nothing if it is
// anything else or does not fit.
std::optional<std::uint64_t> parse_bytes(std::string_view text, std::uint64_t plain_unit = 1);

// The nearest number of bytes; 0 of what is no number.
std::uint64_t whole_bytes(double bytes);

// A short form that parse_bytes reads: "64M", "1.5G", "1000B"; cut to two decimals of its unit.
std::string format_bytes(std::uint64_t bytes);

}  // namespace lms::util
