// Results as one number, the same on every machine for the same bytes: FNV-1a of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

class Digest {
  public:
    void add(const void* data, std::size_t bytes) {
        for (std::size_t i = 0; i < bytes; ++i) {
            value_ = (value_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3ull;
        }
    }
    void print(const char* what) const {
        std::printf("%s %016llx\n", what, static_cast<unsigned long long>(value_));
    }

  private:
    std::uint64_t value_ = 0xCBF29CE484222325ull;
};
