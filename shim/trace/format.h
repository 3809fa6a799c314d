// The bytes of a trace file, for its writer and its readers. docs/reference/trace-format.md has the
// grammar.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lms::trace {

// A file's beginning, and a block's. All numbers are little-endian; checksums are XXH3 of what follows.
struct FileHead {
    static constexpr std::array<char, 8> kMagic = {'l', 'm', 's', 't', 'r', 'a', 'c', 'e'};
    static constexpr std::uint32_t kVersion = 8;  // earlier ones are read, too

    std::array<char, 8> magic = kMagic;
    std::uint32_t version = kVersion;
    std::uint32_t bytes = 0;  // of the description that follows, JSON
    std::uint64_t checksum = 0;
};
struct BlockHead {
    static constexpr std::uint32_t kMagic = 0x626d736c;         // "lmsb"
    static constexpr std::uint32_t kMostPlainBytes = 4u << 20;  // more is not read

    std::uint32_t magic = kMagic;
    std::uint32_t packed_bytes = 0;  // that follow, a zstd frame
    std::uint32_t plain_bytes = 0;   // that it holds
    std::uint32_t reserved = 0;
    std::uint64_t checksum = 0;
};
static_assert(sizeof(FileHead) == 24 && sizeof(BlockHead) == 24);

// How a record begins. A number is never given another meaning.
enum class Tag : std::uint8_t {
    End = 0,  // the program ended by itself
    Device = 1,
    String = 2,
    Site = 3,
    Stream = 4,
    Gpu = 5,
    Allocation = 6,
    Free = 7,
    Launch = 8,
    Move = 9,
    Stall = 10,
    Residency = 11,
    Dropped = 12,
    Region = 13,
    WritesUnseen = 14,
    WorkOver = 15,
    KernelTime = 16,
    StreamFree = 17,
    LinkSpeeds = 18,
    Copy = 19,
    CopyTime = 20,
    ProgramWait = 21,
    Unmanaged = 22,
};

// No text is longer, and no call site has more frames; what a file has more of is not read.
inline constexpr std::size_t kLongestString = 4096, kMostFrames = 64;
// No file has more GPUs.
inline constexpr std::uint64_t kMostDevices = 256;

// Of Touched and Move, as they are written.
inline constexpr unsigned kOverwritten = 1, kMayStay = 2, kInPlace = 4, kOnlyRead = 8;
inline constexpr unsigned kOut = 1, kMakeRoom = 2, kTimed = 4;

constexpr std::uint64_t zigzag(std::int64_t number) {
    return (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
}
constexpr std::int64_t unzigzag(std::uint64_t number) {
    return static_cast<std::int64_t>(number >> 1) ^ -static_cast<std::int64_t>(number & 1);
}

// Seven bits a byte, the lowest first; all bytes but the last have the eighth.
inline void put_number(std::string& bytes, std::uint64_t number) {
    char out[10];
    std::size_t count = 0;
    for (; number >= 0x80; number >>= 7) out[count++] = static_cast<char>(number | 0x80);
    out[count++] = static_cast<char>(number);
    bytes.append(out, count);
}

// Of a trace in several files, the name of each; `path` is that of the first, 0.
inline std::string name_of_part(const std::string& path, unsigned part) {
    return part == 0 ? path : path + "." + std::to_string(part);
}

template <typename Head>
std::string_view bytes_of(const Head& head) {
    return {reinterpret_cast<const char*>(&head), sizeof head};
}

}  // namespace lms::trace
