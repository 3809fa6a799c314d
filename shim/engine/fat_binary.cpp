#include "shim/engine/fat_binary.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string_view>

namespace lms::engine {

namespace {

constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kFatBinaryMagic = 0xba55ed50;

// What nvcc registers: {magic, version, fat binary, array of fat binaries that ends with null (version 2)}.
struct Wrapper {
    std::uint32_t magic;
    std::uint32_t version;
    const char* fat_binary;
    const char* const* parts;
};

// Offsets in a fat binary's header, and in that of each of its entries.
namespace header {
constexpr std::size_t kBytes = 16;
constexpr std::size_t kOwnBytes = 6;      // u16
constexpr std::size_t kEntriesBytes = 8;  // u64
}  // namespace header
namespace entry {
constexpr std::size_t kBytes = 64;
constexpr std::size_t kKind = 0;          // u16: 1 is PTX
constexpr std::size_t kOwnBytes = 4;      // u32
constexpr std::size_t kStoredBytes = 8;   // u64, padding included
constexpr std::size_t kPackedBytes = 16;  // u32, without
constexpr std::size_t kArch = 28;         // u32: 75 is sm_75
constexpr std::size_t kFlags = 40;        // u64
constexpr std::size_t kPlainBytes = 56;   // u64
constexpr std::uint64_t kFlagLz4 = 0x2000;
constexpr std::uint64_t kFlagZstd = 0x8000;
}  // namespace entry

template <typename T>
T read(const char* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

PackedPtx copy_of(const char* head, const char* payload) {
    const auto flags = read<std::uint64_t>(head + entry::kFlags);
    const auto stored = read<std::uint64_t>(head + entry::kStoredBytes);
    const auto packed = read<std::uint32_t>(head + entry::kPackedBytes);
    if (!(flags & (entry::kFlagLz4 | entry::kFlagZstd)))
        return {PackedPtx::Coding::Plain, stored, std::string(payload, stored)};
    return {flags & entry::kFlagZstd ? PackedPtx::Coding::Zstd : PackedPtx::Coding::Lz4,
            read<std::uint64_t>(head + entry::kPlainBytes),
            std::string(payload, std::min<std::uint64_t>(packed, stored))};
}

void look_in_fat_binary(const char* at, std::vector<PackedPtx>& found) {
    if (read<std::uint32_t>(at) != kFatBinaryMagic) return;
    const auto entries = read<std::uint64_t>(at + header::kEntriesBytes);
    at += read<std::uint16_t>(at + header::kOwnBytes);
    const char* newest = nullptr;
    std::uint32_t newest_arch = 0;
    for (const char* end = at + entries; end - at >= static_cast<std::ptrdiff_t>(entry::kBytes);) {
        const auto own = read<std::uint32_t>(at + entry::kOwnBytes);
        const auto stored = read<std::uint64_t>(at + entry::kStoredBytes);
        const auto room = static_cast<std::uint64_t>(end - at);
        if (own < entry::kBytes || own > room || stored > room - own) break;
        const auto arch = read<std::uint32_t>(at + entry::kArch);
        if (read<std::uint16_t>(at + entry::kKind) == 1 && (!newest || arch > newest_arch)) {
            newest = at;
            newest_arch = arch;
        }
        at += own + stored;
    }
    if (newest) found.push_back(copy_of(newest, newest + read<std::uint32_t>(newest + entry::kOwnBytes)));
}

}  // namespace

std::vector<PackedPtx> find_ptx(const void* image, std::optional<std::uint64_t> bytes) {
    std::vector<PackedPtx> found;
    const char* at = static_cast<const char*>(image);
    const std::uint64_t most = bytes.value_or(UINT64_MAX);
    // Text may be shorter than the magic numbers; it has no NUL in it.
    const bool has_magic = bytes ? *bytes >= header::kBytes : strnlen(at, sizeof(std::uint32_t)) >= 4;
    if (!has_magic) return found;
    const auto magic = read<std::uint32_t>(at);
    if (magic == kWrapperMagic && !bytes) {
        const auto wrapper = read<Wrapper>(at);
        constexpr std::uint32_t kParts = 2;
        if (wrapper.version != kParts || !wrapper.parts || !*wrapper.parts) {
            look_in_fat_binary(wrapper.fat_binary, found);
        } else {
            for (const char* const* part = wrapper.parts; *part; ++part) look_in_fat_binary(*part, found);
        }
    } else if (magic == kFatBinaryMagic) {
        if (read<std::uint64_t>(at + header::kEntriesBytes) <= most - header::kBytes)
            look_in_fat_binary(at, found);
    } else if (magic != read<std::uint32_t>("\x7f"
                                            "ELF")) {
        const std::size_t length = strnlen(at, most);
        found.push_back({PackedPtx::Coding::Plain, length, std::string(at, length)});
    }
    return found;
}

std::optional<std::string> unpack(const PackedPtx& ptx) {
    if (ptx.coding == PackedPtx::Coding::Plain) return ptx.bytes;
    // Far above any; a wrong header must not take all memory.
    constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
    if (ptx.plain_bytes > kMost || ptx.bytes.size() > INT_MAX) return std::nullopt;
    std::string text(ptx.plain_bytes, '\0');
    if (ptx.coding == PackedPtx::Coding::Zstd) {
        const std::size_t n = ZSTD_decompress(text.data(), text.size(), ptx.bytes.data(), ptx.bytes.size());
        if (ZSTD_isError(n) || n != text.size()) return std::nullopt;
    } else {
        const int n = LZ4_decompress_safe(ptx.bytes.data(), text.data(), static_cast<int>(ptx.bytes.size()),
                                          static_cast<int>(text.size()));
        if (n < 0 || static_cast<std::size_t>(n) != text.size()) return std::nullopt;
    }
    return text;
}

}  // namespace lms::engine
