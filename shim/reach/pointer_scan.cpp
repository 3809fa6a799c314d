#include "shim/reach/pointer_scan.h"

#include <cstring>

namespace lms::engine {

void scan(const void* data, std::size_t bytes, Bounds bounds, std::pmr::vector<core::Address>& found) {
    constexpr std::size_t kWord = sizeof(core::Address);
    const char* block = static_cast<const char*>(data);
    for (std::size_t at = 0; at + kWord <= bytes; ++at) {
        core::Address word;
        std::memcpy(&word, block + at, kWord);
        if (word - bounds.begin < bounds.end - bounds.begin) found.push_back(word);
    }
}

}  // namespace lms::engine
