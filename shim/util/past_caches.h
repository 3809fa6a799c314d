// Reading host memory that may be write-combined: ordinary loads fetch a few bytes each from beyond the
// caches (cuda.h, CU_MEMHOSTALLOC_WRITECOMBINED), MOVNTDQA 64 at once. Of other memory it is an ordinary
// load.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <smmintrin.h>
#endif

namespace lms::util {

#if defined(__x86_64__)

[[gnu::target("sse4.1")]] inline void read_past_caches(void* to, const void* from, std::size_t bytes) {
    constexpr std::size_t kUnit = sizeof(__m128i);
    auto* out = static_cast<char*>(to);
    const auto* in = static_cast<const char*>(from);
    const std::size_t head = std::min(bytes, (kUnit - reinterpret_cast<std::uintptr_t>(in) % kUnit) % kUnit);
    std::memcpy(out, in, head);
    std::size_t at = head;
    _mm_mfence();  // such loads may pass earlier writes
    for (; bytes - at >= kUnit; at += kUnit) {
        auto* const source = const_cast<__m128i*>(reinterpret_cast<const __m128i*>(in + at));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + at), _mm_stream_load_si128(source));
    }
    std::memcpy(out + at, in + at, bytes - at);
}

#else

inline void read_past_caches(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}

#endif

}  // namespace lms::util
