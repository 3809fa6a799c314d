#include "shim/code/fat_binary.h"

#include <elf.h>
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
constexpr std::size_t kKind = 0;  // u16
constexpr std::uint16_t kKindPtx = 1;
constexpr std::uint16_t kKindNative = 2;
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

PackedCode copy_of(const char* head, const char* payload) {
    const auto flags = read<std::uint64_t>(head + entry::kFlags);
    const auto stored = read<std::uint64_t>(head + entry::kStoredBytes);
    const auto packed = read<std::uint32_t>(head + entry::kPackedBytes);
    if (!(flags & (entry::kFlagLz4 | entry::kFlagZstd)))
        return {PackedCode::Coding::Plain, stored, std::string(payload, stored)};
    return {flags & entry::kFlagZstd ? PackedCode::Coding::Zstd : PackedCode::Coding::Lz4,
            read<std::uint64_t>(head + entry::kPlainBytes),
            std::string(payload, std::min<std::uint64_t>(packed, stored))};
}

PackedCode payload_of(const char* head) {
    return copy_of(head, head + read<std::uint32_t>(head + entry::kOwnBytes));
}

// Calls visit(kind, head) for each entry.
template <typename Visit>
void each_entry(const char* at, Visit&& visit) {
    if (read<std::uint32_t>(at) != kFatBinaryMagic) return;
    const auto entries = read<std::uint64_t>(at + header::kEntriesBytes);
    at += read<std::uint16_t>(at + header::kOwnBytes);
    for (const char* end = at + entries; end - at >= static_cast<std::ptrdiff_t>(entry::kBytes);) {
        const auto own = read<std::uint32_t>(at + entry::kOwnBytes);
        const auto stored = read<std::uint64_t>(at + entry::kStoredBytes);
        const auto room = static_cast<std::uint64_t>(end - at);
        if (own < entry::kBytes || own > room || stored > room - own) break;
        visit(read<std::uint16_t>(at + entry::kKind), at);
        at += own + stored;
    }
}

enum class Form { Text, Native, FatBinaries, Nothing };

// Calls look(fat_binary) for each that the image is or wraps.
template <typename Look>
Form each_fat_binary(const char* at, std::optional<std::uint64_t> bytes, Look&& look) {
    // Text may be shorter than the magic numbers; it has no NUL in it.
    const bool has_magic = bytes ? *bytes >= header::kBytes : strnlen(at, sizeof(std::uint32_t)) >= 4;
    if (!has_magic) return Form::Nothing;
    const auto magic = read<std::uint32_t>(at);
    if (magic == kWrapperMagic && !bytes) {
        const auto wrapper = read<Wrapper>(at);
        constexpr std::uint32_t kParts = 2;
        if (wrapper.version != kParts || !wrapper.parts || !*wrapper.parts) {
            look(wrapper.fat_binary);
        } else {
            for (const char* const* part = wrapper.parts; *part; ++part) look(*part);
        }
        return Form::FatBinaries;
    }
    if (magic == kFatBinaryMagic) {
        const auto own = read<std::uint16_t>(at + header::kOwnBytes);
        const auto entries = read<std::uint64_t>(at + header::kEntriesBytes);
        if (bytes && (own > *bytes || entries > *bytes - own)) return Form::Nothing;
        look(at);
        return Form::FatBinaries;
    }
    return magic == read<std::uint32_t>(ELFMAG) ? Form::Native : Form::Text;
}

// Of an ELF file: to the end of the last thing that its header and sections name.
std::uint64_t bytes_of_elf(const char* at) {
    const auto head = read<Elf64_Ehdr>(at);
    // More than fit into the header are counted in the first section's.
    const std::uint64_t sections =
        head.e_shnum != 0 || head.e_shoff == 0 ? head.e_shnum : read<Elf64_Shdr>(at + head.e_shoff).sh_size;
    std::uint64_t end = std::max<std::uint64_t>({sizeof head, head.e_shoff + sections * head.e_shentsize,
                                                 head.e_phoff + head.e_phnum * head.e_phentsize});
    for (std::uint64_t i = 0; i < sections; ++i) {
        const auto section = read<Elf64_Shdr>(at + head.e_shoff + i * head.e_shentsize);
        if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
    }
    return end;
}

// How much a byte of packed code can be unpacked to: a block of four bytes that repeats one of them 128 KiB
// long; a byte that makes a copy 255 longer.
constexpr std::uint64_t kMostOfZstd = (128 << 10) / 4;
constexpr std::uint64_t kMostOfLz4 = 255;

}  // namespace

namespace {

// Native code for `arch` runs on GPUs of its own major version, and no earlier minor one.
bool runs(std::uint32_t arch, unsigned gpu) {
    return gpu / 10 == arch / 10 && gpu >= arch;
}

}  // namespace

bool ptx_is_like_native(const void* image, std::optional<std::uint64_t> bytes,
                        std::span<const unsigned> gpus) {
    bool like = true;
    each_fat_binary(static_cast<const char*>(image), bytes, [&](const char* fat_binary) {
        std::uint32_t ptx = 0;
        std::vector<std::uint32_t> native;
        each_entry(fat_binary, [&](std::uint16_t kind, const char* head) {
            const auto arch = read<std::uint32_t>(head + entry::kArch);
            if (kind == entry::kKindPtx) ptx = std::max(ptx, arch);
            if (kind == entry::kKindNative) native.push_back(arch);
        });
        if (gpus.empty())
            like &= std::ranges::all_of(native, [&](std::uint32_t arch) { return arch == ptx; });
        for (const unsigned gpu : gpus) {
            std::uint32_t best = 0;
            for (const std::uint32_t arch : native) {
                if (runs(arch, gpu)) best = std::max(best, arch);
            }
            like &= best == 0 || best == ptx;
        }
    });
    return like;
}

std::vector<PackedCode> find_ptx(const void* image, std::optional<std::uint64_t> bytes) {
    std::vector<PackedCode> found;
    const char* at = static_cast<const char*>(image);
    const Form form = each_fat_binary(at, bytes, [&](const char* fat_binary) {
        const char* newest = nullptr;
        std::uint32_t newest_arch = 0;
        each_entry(fat_binary, [&](std::uint16_t kind, const char* head) {
            const auto arch = read<std::uint32_t>(head + entry::kArch);
            if (kind != entry::kKindPtx || (newest && arch <= newest_arch)) return;
            newest = head;
            newest_arch = arch;
        });
        if (newest) found.push_back(payload_of(newest));
    });
    if (form == Form::Text) {
        const std::size_t length = strnlen(at, bytes.value_or(UINT64_MAX));
        found.push_back({PackedCode::Coding::Plain, length, std::string(at, length)});
    }
    return found;
}

std::vector<PackedCode> find_cubins(const void* image, std::optional<std::uint64_t> bytes,
                                    std::span<const unsigned> gpus) {
    std::vector<PackedCode> found;
    const auto wanted = [&](std::uint32_t arch) {
        return gpus.empty() ||
               std::any_of(gpus.begin(), gpus.end(), [&](unsigned gpu) { return runs(arch, gpu); });
    };
    const char* at = static_cast<const char*>(image);
    const Form form = each_fat_binary(at, bytes, [&](const char* fat_binary) {
        each_entry(fat_binary, [&](std::uint16_t kind, const char* head) {
            if (kind == entry::kKindNative && wanted(read<std::uint32_t>(head + entry::kArch)))
                found.push_back(payload_of(head));
        });
    });
    if (form == Form::Native) {
        const std::uint64_t length = bytes ? *bytes : bytes_of_elf(at);
        found.push_back({PackedCode::Coding::Plain, length, std::string(at, length)});
    }
    return found;
}

std::optional<std::string> unpack(const PackedCode& code) {
    if (code.coding == PackedCode::Coding::Plain) return code.bytes;
    const bool zstd = code.coding == PackedCode::Coding::Zstd;
    // Far above any, and what each byte can stand for at the most; a wrong header must not take all memory.
    constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
    const std::uint64_t most = code.bytes.size() * (zstd ? kMostOfZstd : kMostOfLz4);
    if (code.plain_bytes > std::min(kMost, most) || code.bytes.size() > INT_MAX) return std::nullopt;
    const auto told =
        zstd ? ZSTD_getFrameContentSize(code.bytes.data(), code.bytes.size()) : ZSTD_CONTENTSIZE_UNKNOWN;
    if (told != ZSTD_CONTENTSIZE_UNKNOWN && told != code.plain_bytes) return std::nullopt;
    std::string text(code.plain_bytes, '\0');
    if (zstd) {
        const std::size_t n = ZSTD_decompress(text.data(), text.size(), code.bytes.data(), code.bytes.size());
        if (ZSTD_isError(n) || n != text.size()) return std::nullopt;
    } else {
        const int n = LZ4_decompress_safe(code.bytes.data(), text.data(), static_cast<int>(code.bytes.size()),
                                          static_cast<int>(text.size()));
        if (n < 0 || static_cast<std::size_t>(n) != text.size()) return std::nullopt;
    }
    return text;
}

}  // namespace lms::engine
