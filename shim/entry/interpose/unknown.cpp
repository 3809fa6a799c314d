#include "shim/entry/interpose/unknown.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "shim/util/log.h"
#include "shim/util/mutex.h"

namespace lms::entry {

void name_unknown(std::string_view symbol, int version) noexcept {
    try {
        std::string name(symbol);
        if (version != 0) name += fmt::format(" of CUDA {}.{}", version / 1000, version % 1000 / 10);
        static util::Mutex mutex{util::LockOrder::Table};
        static std::set<std::string> named;
        {
            const util::Lock lock(mutex);
            if (!named.insert(name).second) return;
        }
        log::warn(
            "{} is newer than this shim and goes to the driver unseen: memory it names may be misplaced",
            name);
    } catch (...) {
        // Out of host memory: the name goes unsaid.
    }
}

}  // namespace lms::entry
