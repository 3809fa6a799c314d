// What tests ask of <lms/lms.h>.
#pragma once

#include <lms/lms.h>

#include "tests/entry/rig.h"

#define ANSWERS(code, ...)                                                                                  \
    do {                                                                                                    \
        const int rig_answer = __VA_ARGS__;                                                                 \
        if (rig_answer != (code))                                                                           \
            ::rig::failed(__FILE__, __LINE__,                                                               \
                          #__VA_ARGS__ " -> " + std::to_string(rig_answer) + ", expected " RIG_TEXT(code)); \
    } while (0)

namespace rig {

inline const void* at(const Buffer& buffer, std::size_t offset = 0) {
    return reinterpret_cast<const void*>(buffer.at(offset));
}

// Nobody's.
inline const void* const kNowhere = reinterpret_cast<const void*>(0x1000);

inline lms_levels levels_of_gpu() {
    lms_levels levels{};
    levels.size = sizeof levels;
    ANSWERS(LMS_OK, lms_get_levels(0, &levels));
    return levels;
}

inline lms_buffer where_is(const Buffer& buffer) {
    std::size_t count = 0;
    ANSWERS(LMS_OK, lms_snapshot(nullptr, &count));
    std::vector<lms_buffer> all(count);
    ANSWERS(LMS_OK, lms_snapshot(all.data(), &count));
    for (const lms_buffer& each : all) {
        if (each.address == buffer.at()) return each;
    }
    failed(__FILE__, __LINE__, "the buffer is not in the snapshot");
    return {};
}

// What moves memory, by each name.
inline constexpr int (*kMoves[])(const void*, std::size_t) = {lms_pin, lms_prefetch, lms_evict};

}  // namespace rig
