#include "shim/access/object_pins.h"

#include <utility>

#include "shim/program/handles.h"

namespace lms::access {

namespace {

using Objects = program::Handles<const void*, std::vector<session::PinnedIn>>;

Objects& objects() {
    return program::only<Objects>();
}

void let_go_reached(const std::vector<session::PinnedIn>& kept) {
    for (const session::PinnedIn& one : kept) one.session->unpin_reached(one.kept);
}

// What it names from now on; returns what it named.
std::vector<session::PinnedIn> exchange(const void* object, std::vector<session::PinnedIn> kept) {
    const util::Lock lock(objects().mutex);
    std::vector<session::PinnedIn> before = objects().take(object).value_or(std::vector<session::PinnedIn>{});
    if (!kept.empty()) objects().enter(object, std::move(kept));
    return before;
}

}  // namespace

void object_names(const void* object, std::vector<session::PinnedIn> kept) {
    for (const session::PinnedIn& one : kept) one.session->reached();
    let_go_reached(exchange(object, std::move(kept)));
}

ObjectEnd::ObjectEnd(const void* object) : object_(object), kept_(exchange(object, {})) {}

ObjectEnd::~ObjectEnd() {
    let_go_reached(kept_);
}

void ObjectEnd::refused() {
    if (!kept_.empty()) exchange(object_, std::exchange(kept_, {}));
}

}  // namespace lms::access
