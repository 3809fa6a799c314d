// Builds fat binaries as nvcc does, and ones it never would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace support {

enum class Packing { Raw, Lz4, Zstd };

// Which GPUs of an architecture code is for: all from it on, itself alone ("90a"), or its family ("100f").
enum class For : std::uint64_t { All = 0, Itself = 0x100000, Family = 0x200000 };

class FatBinary {
  public:
    explicit FatBinary(std::uint32_t entry_bytes = 80);  // of an entry's header

    FatBinary& ptx(unsigned arch, std::string_view text, Packing packing = Packing::Raw, For gpus = For::All);
    FatBinary& native(unsigned arch, For gpus = For::All);  // an entry of machine code

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
