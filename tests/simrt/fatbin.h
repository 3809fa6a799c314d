// Builds fat binaries as nvcc does, and ones it never would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace simrt {

enum class Packing { Raw, Lz4, Zstd };

class FatBinary {
  public:
    FatBinary();

    FatBinary& ptx(unsigned arch, std::string_view text, Packing packing = Packing::Raw);
    FatBinary& native(unsigned arch);  // an entry of machine code

    // The bytes; valid while this lives and is not changed.
    const void* image();

    std::string& bytes() { return bytes_; }

  private:
    void entry(std::uint16_t kind, unsigned arch, std::uint64_t flags, std::string payload,
               std::size_t compressed, std::size_t plain);

    std::string bytes_;
};

// A module whose kernel `which` stores `value` at the address it is given.
std::string storing_module(unsigned arch, unsigned value, std::string_view suffix = "");

}  // namespace simrt
