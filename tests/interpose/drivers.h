// What a probe sees of the shim and of the fake driver behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/interpose/fake/fake_driver.h"
#include "tests/interpose/table.h"

namespace drivers {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kNoDevice = 100;
constexpr int kNotFound = 500;
constexpr int kNotSupported = 801;

constexpr std::uint64_t kDefault = 0;
constexpr std::uint64_t kLegacy = 1;
constexpr std::uint64_t kPerThread = 2;

constexpr int kSymbolFound = 0;
constexpr int kSymbolUnknown = 1;
constexpr int kVersionTooOld = 2;

using GetProcAddress = int (*)(const char*, void**, int, std::uint64_t);
using GetProcAddressV2 = int (*)(const char*, void**, int, std::uint64_t, int*);

// The handle that a program gets for libcuda.so.1.
void* libcuda();

// The fake driver's own view, by the file that LD_LIBRARY_PATH leads to.
const fake::Address& address(const table::Row& row);
const fake::Record& record();

// The shim's own function for an exported name, whatever its dlsym would say.
void* shim_function(std::string_view symbol);

// What a lookup must give a program: the shim's function for a hooked row, else the driver's own.
void* expected(const table::Row& row);

}  // namespace drivers
