#include "shim/engine/recorded_mappings.h"

namespace lms::engine {

std::optional<RecordedMappings::Addresses> RecordedMappings::drop(Serial chunk) {
    const auto count = counts_.find(chunk);
    if (count == counts_.end() || --count->second != 0) return std::nullopt;
    counts_.erase(count);
    const auto freed = freed_.find(chunk);
    if (freed == freed_.end()) return std::nullopt;
    const std::shared_ptr<Freed> buffer = freed->second;
    freed_.erase(freed);
    if (--buffer->recorded != 0) return std::nullopt;
    return buffer->addresses;
}

bool RecordedMappings::gone(std::span<const Serial> chunks, Addresses addresses) {
    const auto buffer = std::make_shared<Freed>(Freed{addresses, 0});
    for (const Serial chunk : chunks) {
        if (!counts_.contains(chunk)) continue;
        ++buffer->recorded;
        freed_[chunk] = buffer;
    }
    return buffer->recorded == 0;
}

}  // namespace lms::engine
