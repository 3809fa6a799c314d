// What the test programs share. Each is ordinary CUDA: it works through an amount of device memory given in
// MiB as its first argument, verifies every value it computed, prints "ok" and ends with 0, or says what was
// wrong and ends with 1.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define FAIL(...)                               \
    do {                                        \
        std::fprintf(stderr, "%s: ", __FILE__); \
        std::fprintf(stderr, __VA_ARGS__);      \
        std::fputc('\n', stderr);               \
        std::exit(1);                           \
    } while (0)

// A runtime call that must succeed.
#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t check_error = (call);                                            \
        if (check_error != cudaSuccess)                                              \
            FAIL("line %d: %s: %s", __LINE__, #call, cudaGetErrorName(check_error)); \
    } while (0)

// A runtime call that must answer this error, which is then cleared.
#define CHECK_ERROR(expected, call)                                                                    \
    do {                                                                                               \
        cudaError_t check_error = (call);                                                              \
        if (check_error != (expected))                                                                 \
            FAIL("line %d: %s: %s, not %s", __LINE__, #call, cudaGetErrorName(check_error),            \
                 cudaGetErrorName(expected));                                                          \
        if ((expected) != cudaSuccess && cudaGetLastError() != (expected))                             \
            FAIL("line %d: cudaGetLastError did not answer %s", __LINE__, cudaGetErrorName(expected)); \
    } while (0)

#define CHECK_EQUAL(expected, found)                                                                    \
    do {                                                                                                \
        auto check_expected = (expected);                                                               \
        auto check_found = (found);                                                                     \
        if (!(check_expected == check_found))                                                           \
            FAIL("line %d: %s is %.17g, not %.17g", __LINE__, #found, static_cast<double>(check_found), \
                 static_cast<double>(check_expected));                                                  \
    } while (0)

// The launch before it must have been accepted.
#define CHECK_LAUNCH() CHECK(cudaGetLastError())

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Bytes of device memory to work through: the first argument in MiB, or the default.
inline std::size_t bytes_to_use(int argc, char** argv, std::size_t default_mib) {
    if (argc < 2) return default_mib * kMiB;
    char* end = nullptr;
    unsigned long mib = std::strtoul(argv[1], &end, 10);
    if (*end != '\0' || mib == 0)
        FAIL("the argument is an amount of device memory in MiB, not '%s'", argv[1]);
    return mib * kMiB;
}

// A value that looks random, the same on host and device.
__host__ __device__ inline unsigned noise(unsigned long long index, unsigned seed = 0) {
    unsigned long long x = index * 0x9E3779B97F4A7C15ull + (seed + 1) * 0xD1B54A32D192ED03ull;
    x = (x ^ (x >> 32)) * 0xBF58476D1CE4E5B9ull;
    return static_cast<unsigned>(x >> 29);
}

inline unsigned blocks_for(std::size_t threads, unsigned block = 256) {
    return static_cast<unsigned>((threads + block - 1) / block);
}

inline int succeed() {
    std::puts("ok");
    return 0;
}
