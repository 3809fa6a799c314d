#include "shim/code/fat_binary.h"

#include <elf.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string_view>

namespace lms::code {

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
constexpr std::uint64_t kFlagOwn = 0x100000;     // "sm_90a"
constexpr std::uint64_t kFlagFamily = 0x200000;  // "sm_100f"
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

// What code was compiled for: `arch`, and whether for that GPU alone ("sm_90a"), its family ("sm_100f"), or
// neither.
struct Target {
    std::uint32_t arch;
    std::uint64_t features;
    friend bool operator==(const Target&, const Target&) = default;
};

Target target_of(const char* head) {
    return {read<std::uint32_t>(head + entry::kArch),
            read<std::uint64_t>(head + entry::kFlags) & (entry::kFlagOwn | entry::kFlagFamily)};
}

// Native code runs on GPUs of its own major version, and no earlier minor one; PTX on all that are no
// earlier.
bool runs(const Target& target, bool native, unsigned gpu) {
    if (target.features & entry::kFlagOwn) return gpu == target.arch;
    const bool related = !native && !(target.features & entry::kFlagFamily);
    return gpu >= target.arch && (related || gpu / 10 == target.arch / 10);
}

struct Entry {
    const char* head;
    Target target;
};
struct Entries {
    std::vector<Entry> ptx;
    std::vector<Entry> native;
};

Entries entries_of(const char* fat_binary) {
    Entries entries;
    each_entry(fat_binary, [&](std::uint16_t kind, const char* head) {
        if (kind == entry::kKindPtx) entries.ptx.push_back({head, target_of(head)});
        if (kind == entry::kKindNative) entries.native.push_back({head, target_of(head)});
    });
    return entries;
}

// The newest of those that `gpu` can run: several where some are for its own features.
std::vector<Entry> newest_for(std::vector<Entry> entries, bool native, unsigned gpu) {
    std::erase_if(entries, [&](const Entry& each) { return !runs(each.target, native, gpu); });
    std::uint32_t newest = 0;
    for (const Entry& each : entries) newest = std::max(newest, each.target.arch);
    std::erase_if(entries, [&](const Entry& each) { return each.target.arch != newest; });
    return entries;
}

// The native code that may run; with no GPUs given, all.
std::vector<Entry> native_for(const Entries& entries, std::span<const unsigned> gpus) {
    if (gpus.empty()) return entries.native;
    std::vector<Entry> all;
    for (const unsigned gpu : gpus) {
        const std::vector<Entry> some = newest_for(entries.native, true, gpu);
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

bool has(const std::vector<Entry>& entries, const Target& target) {
    return std::ranges::find(entries, target, &Entry::target) != entries.end();
}

// The PTX that may run, or stands for the native code that does: each once.
std::vector<Entry> ptx_for(const Entries& entries, std::span<const unsigned> gpus) {
    if (gpus.empty() || entries.ptx.empty()) return entries.ptx;
    const std::vector<Entry> native = native_for(entries, gpus);
    std::vector<Entry> wanted;
    for (const unsigned gpu : gpus) {
        const std::vector<Entry> some = newest_for(entries.ptx, false, gpu);
        wanted.insert(wanted.end(), some.begin(), some.end());
    }
    std::vector<Entry> found = entries.ptx;
    std::erase_if(found,
                  [&](const Entry& each) { return !has(wanted, each.target) && !has(native, each.target); });
    if (found.empty())
        found.push_back(
            std::ranges::max(entries.ptx, {}, [](const Entry& each) { return each.target.arch; }));
    return found;
}

}  // namespace

bool ptx_is_like_native(const void* image, std::optional<std::uint64_t> bytes,
                        std::span<const unsigned> gpus) {
    bool like = true;
    each_fat_binary(static_cast<const char*>(image), bytes, [&](const char* fat_binary) {
        const Entries entries = entries_of(fat_binary);
        like &= std::ranges::all_of(native_for(entries, gpus),
                                    [&](const Entry& each) { return has(entries.ptx, each.target); });
    });
    return like;
}

std::vector<PackedCode> find_ptx(const void* image, std::optional<std::uint64_t> bytes,
                                 std::span<const unsigned> gpus) {
    std::vector<PackedCode> found;
    const char* at = static_cast<const char*>(image);
    const Form form = each_fat_binary(at, bytes, [&](const char* fat_binary) {
        for (const Entry& each : ptx_for(entries_of(fat_binary), gpus))
            found.push_back(payload_of(each.head));
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
    const char* at = static_cast<const char*>(image);
    const Form form = each_fat_binary(at, bytes, [&](const char* fat_binary) {
        for (const Entry& each : entries_of(fat_binary).native) {
            if (gpus.empty() ||
                std::ranges::any_of(gpus, [&](unsigned gpu) { return runs(each.target, true, gpu); }))
                found.push_back(payload_of(each.head));
        }
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

}  // namespace lms::code
