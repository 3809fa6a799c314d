#include "shim/engine/streams.h"

#include <mutex>
#include <unordered_map>

namespace lms::engine {

namespace {

// Never destroyed: streams are destroyed by other libraries' exit handlers too.
struct Registry {
    std::mutex mutex;
    std::unordered_map<CUstream, CUcontext> streams;
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

}  // namespace

void stream_created(CUstream stream, CUcontext context) {
    const std::lock_guard lock(registry().mutex);
    registry().streams[stream] = context;
}

void stream_destroyed(CUstream stream) {
    const std::lock_guard lock(registry().mutex);
    registry().streams.erase(stream);
}

void streams_destroyed_with(CUcontext context) {
    const std::lock_guard lock(registry().mutex);
    std::erase_if(registry().streams, [&](const auto& stream) { return stream.second == context; });
}

std::vector<CUstream> known_streams() {
    const std::lock_guard lock(registry().mutex);
    std::vector<CUstream> streams;
    for (const auto& [stream, context] : registry().streams) streams.push_back(stream);
    return streams;
}

}  // namespace lms::engine
