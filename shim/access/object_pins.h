// Objects of the driver that hold addresses (textures): what they name stays on the device while they live.
#pragma once

#include <vector>

#include "shim/session/submit.h"

namespace lms::access {

// Thread-safe. `object` is the driver's handle.

// The object names what is kept from now on, instead of what it named before. That may move again when the
// work submitted so far is done: the program need not wait for it before it takes the object away.
void object_names(const void* object, std::vector<session::PinnedIn> kept);

// Around the call that takes the object away, or what it names: once the driver has, another may have the
// handle.
class ObjectEnd {
  public:
    explicit ObjectEnd(const void* object);
    ~ObjectEnd();
    ObjectEnd(const ObjectEnd&) = delete;
    ObjectEnd& operator=(const ObjectEnd&) = delete;
    // The driver has not: it names what it did.
    void refused();

  private:
    const void* object_;
    std::vector<session::PinnedIn> kept_;
};

}  // namespace lms::access
