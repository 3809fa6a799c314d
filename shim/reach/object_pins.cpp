#include "shim/reach/object_pins.h"
#include "shim/util/mutex.h"

#include <unordered_map>
#include <utility>

namespace lms::engine {

namespace {

// Never destroyed: objects are destroyed by other libraries' exit handlers too.
struct ObjectRegistry {
    util::Mutex mutex{util::LockOrder::Table};
    std::unordered_map<const void*, std::vector<PinnedIn>> objects LMS_GUARDED_BY(mutex);
};

ObjectRegistry& object_registry() {
    static ObjectRegistry& instance = *new ObjectRegistry;
    return instance;
}

void let_go_reached(const std::vector<PinnedIn>& kept) {
    for (const PinnedIn& one : kept) one.session->unpin_reached(one.kept);
}

// What it names from now on; returns what it named.
std::vector<PinnedIn> exchange(const void* object, std::vector<PinnedIn> kept) {
    const util::Lock lock(object_registry().mutex);
    if (!kept.empty()) {
        kept.swap(object_registry().objects[object]);
        return kept;
    }
    const auto it = object_registry().objects.find(object);
    if (it == object_registry().objects.end()) return {};
    kept = std::move(it->second);
    object_registry().objects.erase(it);
    return kept;
}

}  // namespace

void object_names(const void* object, std::vector<PinnedIn> kept) {
    for (const PinnedIn& one : kept) one.session->reached();
    let_go_reached(exchange(object, std::move(kept)));
}

ObjectEnd::ObjectEnd(const void* object) : object_(object), kept_(exchange(object, {})) {}

ObjectEnd::~ObjectEnd() {
    let_go_reached(kept_);
}

void ObjectEnd::refused() {
    if (!kept_.empty()) exchange(object_, std::exchange(kept_, {}));
}

}  // namespace lms::engine
