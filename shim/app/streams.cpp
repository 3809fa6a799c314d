#include "shim/app/streams.h"

#include <unordered_map>

#include "shim/app/capture.h"
#include "shim/util/bounds.h"
#include "shim/util/mutex.h"

namespace lms::engine {

struct StreamEntry {
    CUcontext context;
    int users = 0;
    bool ending = false;
};

namespace {

// Never destroyed: streams are destroyed by other libraries' exit handlers too.
struct StreamRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    util::Condition unused;
    std::unordered_map<CUstream, std::shared_ptr<StreamEntry>> streams LMS_GUARDED_BY(mutex);

    // Null if it is not known.
    std::shared_ptr<StreamEntry> find(CUstream stream) const LMS_REQUIRES(mutex) {
        const auto it = streams.find(stream);
        return it == streams.end() ? nullptr : it->second;
    }
};

StreamRegistry& stream_registry() {
    static StreamRegistry& instance = *new StreamRegistry;
    return instance;
}

}  // namespace

void stream_created(CUstream stream, CUcontext context) {
    const util::Lock lock(stream_registry().mutex);
    stream_registry().streams[stream] = std::make_shared<StreamEntry>(StreamEntry{context});
}

std::vector<CUstream> streams_destroyed_with(CUcontext context) {
    std::vector<CUstream> gone;
    {
        const util::Lock lock(stream_registry().mutex);
        std::erase_if(stream_registry().streams, [&](const auto& each) {
            if (each.second->context != context) return false;
            gone.push_back(each.first);
            return true;
        });
    }
    for (const CUstream stream : gone) {
        const CaptureEnd end(stream);
    }
    return gone;
}

std::vector<KnownStream> known_streams() {
    const util::Lock lock(stream_registry().mutex);
    std::vector<KnownStream> streams;
    for (const auto& [stream, entry] : stream_registry().streams) streams.push_back({stream, entry->context});
    return streams;
}

CUcontext context_of_known(CUstream stream) {
    const util::Lock lock(stream_registry().mutex);
    const auto entry = stream_registry().find(stream);
    return entry ? entry->context : nullptr;
}

StreamUse::StreamUse(CUstream stream) {
    const util::Lock lock(stream_registry().mutex);
    entry_ = stream_registry().find(stream);
    if (entry_ && entry_->ending) entry_ = nullptr;
    if (entry_) ++entry_->users;
}

StreamUse::~StreamUse() {
    if (!entry_) return;
    const util::Lock lock(stream_registry().mutex);
    --entry_->users;
    stream_registry().unused.notify_all();
}

StreamEnd::StreamEnd(CUstream stream) : stream_(stream) {
    util::Lock lock(stream_registry().mutex);
    entry_ = stream_registry().find(stream);
    if (!entry_) return;
    entry_->ending = true;
    stream_registry().unused.wait_for(lock, bounds::kOtherThread, [&] { return entry_->users == 0; });
}

void StreamEnd::unlist() {
    if (!entry_) return;
    const util::Lock lock(stream_registry().mutex);
    if (stream_registry().find(stream_) == entry_) stream_registry().streams.erase(stream_);
}

void StreamEnd::refused() {
    if (!entry_) return;
    const util::Lock lock(stream_registry().mutex);
    entry_->ending = false;
    stream_registry().streams.emplace(stream_, entry_);
    entry_ = nullptr;
}

}  // namespace lms::engine
