// Which locks the calling thread holds, where that is checked (util/mutex.h).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace lms::util::lock_checks {

// Reports what is wrong; a test may record it instead.
using Report = void (*)(const char* what);
inline Report report = [](const char* what) {
    std::fprintf(stderr, "locks: %s\n", what);
    std::abort();
};

// No constructor and no destructor: exit handlers take locks when those of thread_local objects have run.
struct Held {
    static constexpr int kMost = 8;
    struct One {
        const void* mutex;
        int order;
    };
    One all[kMost];
    int count;

    One* find(const void* mutex) {
        for (int i = 0; i < count; ++i) {
            if (all[i].mutex == mutex) return &all[i];
        }
        return nullptr;
    }
};
inline constinit thread_local Held held{};

// Before it is waited for, so that threads that would wait for each other say so first.
inline void taking(const void* mutex, int order) {
    if (held.find(mutex)) return report("taken by the thread that holds it");
    for (int i = 0; i < held.count; ++i) {
        if (held.all[i].order >= order) return report("taken out of order");
    }
    if (held.count == Held::kMost) return report("more held at once than there are kinds");
    held.all[held.count++] = {mutex, order};
}

inline void needs(const void* mutex) {
    if (!held.find(mutex)) report("not held where it is needed");
}

inline void leaving(const void* mutex) {
    Held::One* const one = held.find(mutex);
    if (!one) return report("dropped by a thread that does not hold it");
    *one = held.all[--held.count];
}

// `may(order)`: whether a lock of that kind may be held across a call of the driver.
template <typename May>
void calling_driver(May&& may) {
    for (int i = 0; i < held.count; ++i) {
        if (!may(held.all[i].order)) return report("held across a call of the driver");
    }
}

}  // namespace lms::util::lock_checks
