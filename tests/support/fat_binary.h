// Builds fat binaries as nvcc does, and ones it never would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace support {

enum class Packing { Raw, Lz4, Zstd };

class FatBinary {
  public:
    explicit FatBinary(std::uint32_t entry_bytes = 80);  // of an entry's header

    FatBinary& ptx(unsigned arch, std::string_view text, Packing packing = Packing::Raw);
    FatBinary& native(unsigned arch);  // an entry of machine code

    // The bytes, with their number put in; valid while this lives and is not changed.
    const void* image();
    std::string whole();
    std::string& bytes() { return bytes_; }

  private:
    void entry(std::uint16_t kind, unsigned arch, std::uint64_t flags, std::string payload,
               std::size_t compressed, std::size_t plain);

    std::uint32_t entry_bytes_;
    std::string bytes_;
};

}  // namespace support
