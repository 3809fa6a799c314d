// How large the elements of arrays and textures are.
#pragma once

#include <cstddef>
#include <optional>

#include "shim/device/cuda_api.h"

namespace lms::access {

// Bytes of an element; nothing where a format packs or compresses its channels.
inline std::optional<std::size_t> element_bytes(CUarray_format format, unsigned channels) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
            return channels;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
            return std::size_t{2} * channels;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
            return std::size_t{4} * channels;
        default:
            return std::nullopt;
    }
}

}  // namespace lms::access
