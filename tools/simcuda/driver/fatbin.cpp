#include "tools/simcuda/driver/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/native_stub.h"

namespace simcuda::driver {
namespace {

struct Wrapper {
    std::uint32_t magic;
    std::uint32_t version;  // 2: `linked` is an array of fat binaries that ends with null
    const std::byte* fat_binary;
    const std::byte* const* linked;
};
constexpr std::uint32_t kWrapperMagic = 0x466243b1;
constexpr std::uint32_t kWrapperLinked = 2;

struct Header {
    std::uint32_t magic;
    std::uint16_t version;
    std::uint16_t header_bytes;
    std::uint64_t payload_bytes;  // all entries
};
constexpr std::uint32_t kFatBinaryMagic = 0xBA55ED50;

struct ImageEntry {
    std::uint16_t kind;
    std::uint16_t version;
    std::uint32_t header_bytes;
    std::uint64_t payload_bytes;  // as stored, padding included
    std::uint32_t compressed_bytes;
    std::uint32_t options_offset;
    std::uint16_t minor;
    std::uint16_t major;
    std::uint32_t arch;
    std::uint32_t name_offset;
    std::uint32_t name_bytes;
    std::uint64_t flags;
    std::uint64_t reserved;
    std::uint64_t plain_bytes;  // after decompression
};
static_assert(sizeof(ImageEntry) == 64);  // the header may go on: 80 bytes is usual
constexpr std::uint16_t kKindPtx = 1, kKindElf = 2;
constexpr std::uint64_t kFlagLz4 = 0x2000;
constexpr std::uint64_t kFlagZstd = 0x8000;

constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";

template <class T>
T read(const std::byte* from) {
    T value{};
    std::memcpy(&value, from, sizeof(T));
    return value;
}

std::optional<std::string> decompress(const ImageEntry& entry, const std::byte* payload) {
    const char* stored = reinterpret_cast<const char*>(payload);
    if (!(entry.flags & (kFlagLz4 | kFlagZstd))) return std::string(stored, entry.payload_bytes);
    std::string text(entry.plain_bytes, '\0');
    if (entry.flags & kFlagZstd) {
        std::size_t size = ZSTD_decompress(text.data(), text.size(), stored, entry.compressed_bytes);
        if (ZSTD_isError(size) || size != text.size()) return std::nullopt;
    } else {
        int size = LZ4_decompress_safe(stored, text.data(), static_cast<int>(entry.compressed_bytes),
                                       static_cast<int>(text.size()));
        if (size < 0 || static_cast<std::size_t>(size) != text.size()) return std::nullopt;
    }
    return text;
}

// "sm_90a" and "sm_120f" run on their own architecture (or family) alone; the entry's number does not say so.
bool arch_specific(std::string_view ptx) {
    std::size_t at = ptx.find(".target");
    if (at == std::string_view::npos) return false;
    std::string_view line = ptx.substr(at, ptx.find_first_of(",\n", at) - at);
    std::size_t last = line.find_last_not_of(" \t\r");
    return last != std::string_view::npos && (line[last] == 'a' || line[last] == 'f');
}

struct Candidate {
    ImageEntry entry;
    const std::byte* payload;
};

CUresult find_in_fat_binary(const std::byte* at, unsigned arch, std::vector<std::string>& modules) {
    auto header = read<Header>(at);
    if (header.magic != kFatBinaryMagic || header.header_bytes < sizeof(Header)) {
        return CUDA_ERROR_INVALID_IMAGE;
    }
    at += header.header_bytes;
    const std::byte* end = at + header.payload_bytes;
    std::vector<Candidate> candidates, native;
    while (static_cast<std::size_t>(end - at) >= sizeof(ImageEntry)) {
        auto entry = read<ImageEntry>(at);
        auto room = static_cast<std::size_t>(end - at);
        if (entry.header_bytes < sizeof(ImageEntry) || entry.header_bytes > room ||
            entry.payload_bytes > room - entry.header_bytes || entry.compressed_bytes > entry.payload_bytes) {
            return CUDA_ERROR_INVALID_IMAGE;
        }
        if (entry.kind == kKindPtx && entry.arch <= arch) {
            candidates.push_back({entry, at + entry.header_bytes});
        }
        if (entry.kind == kKindElf) native.push_back({entry, at + entry.header_bytes});
        at += entry.header_bytes + entry.payload_bytes;
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.entry.arch > b.entry.arch; });
    for (const Candidate& candidate : candidates) {
        std::optional<std::string> text = decompress(candidate.entry, candidate.payload);
        if (!text) return CUDA_ERROR_INVALID_IMAGE;
        text->resize(std::min(text->size(), std::strlen(text->c_str())));  // padding
        if (arch_specific(*text) && candidate.entry.arch != arch) continue;
        modules.push_back(std::move(*text));
        return CUDA_SUCCESS;
    }
    // Parameters are the same on every architecture.
    if (!native.empty() && knobs().skips_native) {
        const std::optional<std::string> cubin = decompress(native[0].entry, native[0].payload);
        modules.push_back(cubin ? stub_of(*cubin) : "");
        if (!modules.back().empty()) return CUDA_SUCCESS;
        modules.pop_back();
    }
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult find_in_wrapper(const Wrapper& wrapper, unsigned arch, std::vector<std::string>& modules) {
    if (wrapper.version != kWrapperLinked || !wrapper.linked || !*wrapper.linked) {
        return find_in_fat_binary(wrapper.fat_binary, arch, modules);
    }
    for (const std::byte* const* part = wrapper.linked; *part; ++part) {
        CUresult result = find_in_fat_binary(*part, arch, modules);
        // NVIDIA's device runtime is among them, as machine code; what needs it will be found to lack it.
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_BINARY_FOR_GPU) return result;
    }
    return modules.empty() ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS;
}

// Text that begins like PTX: blanks and comments, then its `.version`.
bool looks_like_ptx(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        at = text.find_first_not_of(" \t\r\n", at);
        if (at == std::string_view::npos) return false;
        std::string_view rest = text.substr(at);
        if (rest.starts_with(".version")) return true;
        if (rest.starts_with("//")) {
            at = text.find('\n', at);
        } else if (rest.starts_with("/*")) {
            at = text.find("*/", at + 2);
            if (at != std::string_view::npos) at += 2;
        } else {
            return false;
        }
    }
    return false;
}

}  // namespace

CUresult find_ptx(const void* image, unsigned arch, std::vector<std::string>& modules) {
    modules.clear();
    const auto* bytes = static_cast<const std::byte*>(image);
    const auto* text = static_cast<const char*>(image);
    // PTX text may be shorter than the magic numbers; strnlen keeps within it.
    if (strnlen(text, kElfMagic.size()) == kElfMagic.size()) {
        if (std::string_view(text, kElfMagic.size()) == kElfMagic) return CUDA_ERROR_NO_BINARY_FOR_GPU;
        if (read<std::uint32_t>(bytes) == kWrapperMagic) {
            return find_in_wrapper(read<Wrapper>(bytes), arch, modules);
        }
        if (read<std::uint32_t>(bytes) == kFatBinaryMagic) return find_in_fat_binary(bytes, arch, modules);
        if (looks_like_ptx(text)) {
            modules.emplace_back(text);
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_IMAGE;
}

std::size_t fat_binary_bytes(std::string_view bytes) {
    if (bytes.size() < sizeof(Header)) return 0;
    const auto header = read<Header>(reinterpret_cast<const std::byte*>(bytes.data()));
    if (header.magic != kFatBinaryMagic || header.header_bytes < sizeof(Header) ||
        header.header_bytes > bytes.size() || header.payload_bytes > bytes.size() - header.header_bytes)
        return 0;
    return header.header_bytes + header.payload_bytes;
}

}  // namespace simcuda::driver
