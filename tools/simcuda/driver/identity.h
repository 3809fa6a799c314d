// What a simulated GPU is called, whoever is asked: the driver or the management library.
#pragma once

#include <array>
#include <cstdio>
#include <cstring>
#include <string>

namespace simcuda::driver {

inline constexpr const char* kDriverVersion = "580.00";
inline constexpr const char* kDeviceName = "Simulated GPU";

constexpr int pci_bus(int ordinal) {
    return ordinal + 1;
}

// "domain:bus:device.function", the domain in so many digits.
inline std::string pci_id(int ordinal, int domain_digits = 4) {
    char text[32];
    std::snprintf(text, sizeof text, "%0*X:%02X:00.0", domain_digits, 0, pci_bus(ordinal));
    return text;
}

inline std::array<unsigned char, 16> uuid_of(int ordinal) {
    std::array<unsigned char, 16> bytes;
    std::memcpy(bytes.data(), "simcuda-device-", 15);
    bytes[15] = static_cast<unsigned char>('0' + ordinal);
    return bytes;
}

}  // namespace simcuda::driver
