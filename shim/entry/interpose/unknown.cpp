#include "shim/entry/interpose/unknown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "shim/util/log.h"
#include "shim/util/mutex.h"

namespace lms::entry {

namespace {

// Exported by NVIDIA's drivers declared nowhere, and found by no cuGetProcAddress.
constexpr std::array<std::string_view, 3> kOldAndUndocumented{"cuEGLApiInit", "cuMemGetAttribute",
                                                              "cuMemGetAttribute_v2"};

}  // namespace

void name_unknown(std::string_view symbol, int version) noexcept {
    if (std::ranges::find(kOldAndUndocumented, symbol) != kOldAndUndocumented.end()) return;
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
