#include "shim/program/per_thread_streams.h"

#include <pthread.h>

#include <optional>
#include <utility>
#include <vector>

#include "shim/program/handles.h"

namespace lms::program {

namespace {

constexpr PerThreadStream kMark = PerThreadStream{1} << 63;

struct PerThreadStreams : Handles<PerThreadStream, CUcontext> {
    PerThreadStream given LMS_GUARDED_BY(mutex) = 0;
    std::atomic<std::uint64_t> contexts_gone{0};
    std::atomic<std::uint64_t> gone{0};
};

PerThreadStreams& per_thread_streams() {
    return only<PerThreadStreams>();
}

// One thread's.
struct Own {
    std::vector<std::pair<CUcontext, PerThreadStream>> streams;
    std::uint64_t contexts_gone = 0;  // when it was last looked through

    PerThreadStream in(CUcontext context) {
        forget_gone();
        for (const auto& [known, stream] : streams) {
            if (known == context) return stream;
        }
        PerThreadStreams& all = per_thread_streams();
        const util::Lock lock(all.mutex);
        const PerThreadStream stream = kMark | ++all.given;
        all.enter(stream, context);
        streams.emplace_back(context, stream);
        return stream;
    }

  private:
    // A new context may have the handle of one that is gone.
    void forget_gone() {
        const std::uint64_t now = per_thread_streams().contexts_gone.load();
        if (contexts_gone == now) return;
        contexts_gone = now;
        std::erase_if(streams, [](const auto& each) { return !per_thread_stream_lives(each.second); });
    }
};

void thread_ends(void* own) {
    PerThreadStreams& all = per_thread_streams();
    {
        const util::Lock lock(all.mutex);
        for (const auto& [context, stream] : static_cast<Own*>(own)->streams) all.forget(stream);
    }
    ++all.gone;
    delete static_cast<Own*>(own);
}

// Where the program has taken all keys, or there is no memory for a thread's: nobody tells then that the
// thread ends, and what it had stays.
constinit thread_local Own* keyless = nullptr;

// No thread_local object: exit handlers come here when those are gone.
Own& own() {
    static const std::optional<pthread_key_t> slot = [] {
        pthread_key_t made{};
        return pthread_key_create(&made, thread_ends) == 0 ? std::optional(made) : std::nullopt;
    }();
    if (keyless) return *keyless;
    if (void* known = slot ? pthread_getspecific(*slot) : nullptr) return *static_cast<Own*>(known);
    auto* const made = new Own;
    if (!slot || pthread_setspecific(*slot, made) != 0) keyless = made;
    return *made;
}

}  // namespace

PerThreadStream per_thread_stream(CUcontext context) {
    return own().in(context);
}

bool per_thread_stream_lives(PerThreadStream stream) {
    if (!(stream & kMark)) return true;
    PerThreadStreams& all = per_thread_streams();
    const util::Lock lock(all.mutex);
    return all.find(stream) != nullptr;
}

void per_thread_streams_gone_with(CUcontext context) {
    PerThreadStreams& all = per_thread_streams();
    {
        const util::Lock lock(all.mutex);
        all.forget_if([&](PerThreadStream, CUcontext in) { return in == context; });
    }
    ++all.contexts_gone;
    ++all.gone;
}

std::uint64_t per_thread_streams_gone() {
    return per_thread_streams().gone.load();
}

}  // namespace lms::program
