#include "shim/access/object_pins.h"

#include <utility>

#include "shim/program/handles.h"

namespace lms::shim {

namespace {

using Objects = Handles<const void*, std::vector<PinnedIn>>;

Objects& objects() {
    return only<Objects>();
}

void let_go_reached(const std::vector<PinnedIn>& kept) {
    for (const PinnedIn& one : kept) one.session->unpin_reached(one.kept);
}

// What it names from now on; returns what it named.
std::vector<PinnedIn> exchange(const void* object, std::vector<PinnedIn> kept) {
    const util::Lock lock(objects().mutex);
    std::vector<PinnedIn> before = objects().take(object).value_or(std::vector<PinnedIn>{});
    if (!kept.empty()) objects().enter(object, std::move(kept));
    return before;
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

}  // namespace lms::shim
