#include "shim/reach/object_pins.h"
#include "shim/util/mutex.h"

#include <unordered_map>
#include <utility>

namespace lms::engine {

namespace {

// Never destroyed: objects are destroyed by other libraries' exit handlers too.
struct Registry {
    util::Mutex mutex{util::LockOrder::Table};
    std::unordered_map<const void*, std::vector<PinnedIn>> objects LMS_GUARDED_BY(mutex);
};

Registry& registry() {
    static Registry& instance = *new Registry;
    return instance;
}

}  // namespace

void object_names(const void* object, std::vector<PinnedIn> kept) {
    for (const PinnedIn& one : kept) one.session->reached();
    {
        const util::Lock lock(registry().mutex);
        if (kept.empty()) {
            const auto it = registry().objects.find(object);
            if (it == registry().objects.end()) return;
            kept.swap(it->second);
            registry().objects.erase(it);
        } else {
            kept.swap(registry().objects[object]);
        }
    }
    for (const PinnedIn& one : kept) one.session->unpin_reached(one.kept);
}

void object_gone(const void* object) {
    object_names(object, {});
}

}  // namespace lms::engine
