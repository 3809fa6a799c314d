#include "tests/support/fat_binary.h"

#include <lz4.h>
#include <zstd.h>

#include <cstring>

namespace support {
namespace {

constexpr std::size_t kHeaderBytes = 16;

template <class T>
void put(std::string& at, std::size_t offset, T value) {
    std::memcpy(at.data() + offset, &value, sizeof(value));
}

}  // namespace

FatBinary::FatBinary(std::uint32_t entry_bytes) : entry_bytes_(entry_bytes), bytes_(kHeaderBytes, '\0') {
    put<std::uint32_t>(bytes_, 0, 0xBA55ED50);
    put<std::uint16_t>(bytes_, 4, 1);
    put<std::uint16_t>(bytes_, 6, kHeaderBytes);
}

FatBinary& FatBinary::ptx(unsigned arch, std::string_view text, Packing packing, For gpus) {
    std::string plain(text);
    plain += '\0';
    std::string packed = plain;
    std::uint64_t flags = 0x11 | static_cast<std::uint64_t>(gpus);
    if (packing == Packing::Lz4) {
        packed.resize(static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(plain.size()))));
        packed.resize(static_cast<std::size_t>(LZ4_compress_default(
            plain.data(), packed.data(), static_cast<int>(plain.size()), static_cast<int>(packed.size()))));
        flags |= 0x2000;
    } else if (packing == Packing::Zstd) {
        packed.resize(ZSTD_compressBound(plain.size()));
        packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 3));
        flags |= 0x8000;
    }
    const bool compressed = packing != Packing::Raw;
    entry(1, arch, flags, packed, compressed ? packed.size() : 0, compressed ? plain.size() : 0);
    return *this;
}

FatBinary& FatBinary::native(unsigned arch, For gpus) {
    entry(2, arch, 0x11 | static_cast<std::uint64_t>(gpus),
          std::string("\x7f"
                      "ELF and what follows"),
          0, 0);
    return *this;
}

void FatBinary::entry(std::uint16_t kind, unsigned arch, std::uint64_t flags, std::string payload,
                      std::size_t compressed, std::size_t plain) {
    payload.resize((payload.size() + 7) / 8 * 8);
    std::string head(entry_bytes_, '\0');
    put<std::uint16_t>(head, 0, kind);
    put<std::uint16_t>(head, 2, 0x0101);
    put<std::uint32_t>(head, 4, entry_bytes_);
    put<std::uint64_t>(head, 8, payload.size());
    put<std::uint32_t>(head, 16, static_cast<std::uint32_t>(compressed));
    put<std::uint32_t>(head, 28, arch);
    put<std::uint64_t>(head, 40, flags);
    put<std::uint64_t>(head, 56, plain);
    bytes_ += head + payload;
}

const void* FatBinary::image() {
    put<std::uint64_t>(bytes_, 8, bytes_.size() - kHeaderBytes);
    return bytes_.data();
}

std::string FatBinary::whole() {
    image();
    return bytes_;
}

}  // namespace support
