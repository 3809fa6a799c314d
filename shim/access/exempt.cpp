#include "shim/access/exempt.h"

#include <fmt/ranges.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "shim/trace/callstack.h"
#include "shim/util/log.h"
#include "shim/util/mutex.h"
#include "shim/util/settings.h"

namespace lms::access {

namespace {

struct Code {
    std::uintptr_t begin;
    std::uintptr_t end;
    bool operator==(const Code&) const = default;
};

// What is loaded that is exempt. Replaced as a whole where that has changed; those before are kept, because
// another thread may still look at them.
struct Loaded {
    mutable std::atomic<std::uint64_t> changes;  // loads and unloads there had been when it was so last
    std::vector<Code> exempt;
    std::unique_ptr<const Loaded> before;
};
std::atomic<const Loaded*> loaded{nullptr};
util::Mutex renewing{util::LockOrder::Table};

// Of the names that the user has given beyond the default, which no library has had: said when the program
// ends.
struct Unmatched {
    util::Mutex mutex{util::LockOrder::Leaf};
    std::vector<std::string> names LMS_GUARDED_BY(mutex);
    std::atomic<pid_t> process = 0;  // asked without the lock, which a child of fork may find held
};
Unmatched& unmatched() {
    static Unmatched& instance = *new Unmatched;
    return instance;
}

void tell_unmatched() {
    if (unmatched().process != getpid()) return;
    std::vector<std::string> names;
    {
        const util::Lock lock(unmatched().mutex);
        names = unmatched().names;
    }
    if (!names.empty())
        log::warn("LMS_EXEMPT: no library was loaded whose file name begins with {}",
                  fmt::join(names, " or "));
}

void begin_matching() {
    std::vector<std::string> names = settings().exempt;
    std::erase_if(names,
                  [](const std::string& name) { return std::ranges::count(default_exempt(), name) > 0; });
    if (names.empty()) return;
    {
        const util::Lock lock(unmatched().mutex);
        unmatched().names = std::move(names);
        unmatched().process = getpid();
    }
    std::atexit(tell_unmatched);
}

bool is_exempt(std::string_view path) {
    const std::string_view file = path.substr(path.rfind('/') + 1);
    const auto begins = [&](const std::string& name) { return file.starts_with(name); };
    if (std::ranges::none_of(settings().exempt, begins)) return false;
    const util::Lock lock(unmatched().mutex);
    std::erase_if(unmatched().names, begins);
    return true;
}

// How often something was loaded or unloaded. One number, for two would have to be read at once.
std::uint64_t changes_of(const dl_phdr_info& info) {
    return info.dlpi_adds + info.dlpi_subs;
}

int count_changes(dl_phdr_info* info, std::size_t, void* into) {
    *static_cast<std::uint64_t*>(into) = changes_of(*info);
    return 1;  // the first tells for all
}

int find_exempt(dl_phdr_info* info, std::size_t, void* into) {
    Loaded& now = *static_cast<Loaded*>(into);
    now.changes = changes_of(*info);
    if (!info->dlpi_name || !is_exempt(info->dlpi_name)) return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
        const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
        now.exempt.push_back({begin, begin + part.p_memsz});
    }
    return 0;
}

const Loaded& look() {
    [[maybe_unused]] static const bool begun = (begin_matching(), true);
    std::uint64_t changes = 0;
    dl_iterate_phdr(count_changes, &changes);
    const Loaded* known = loaded.load(std::memory_order_acquire);
    if (known && known->changes == changes) return *known;
    auto fresh = std::make_unique<Loaded>();
    dl_iterate_phdr(find_exempt, fresh.get());
    const util::Lock lock(renewing);
    known = loaded.load();
    if (known && known->exempt == fresh->exempt) {
        known->changes = fresh->changes.load();
        return *known;
    }
    fresh->before.reset(known);
    loaded.store(fresh.get(), std::memory_order_release);
    return *fresh.release();
}

bool in_exempt_code(std::uintptr_t address) {
    return std::ranges::any_of(loaded.load(std::memory_order_acquire)->exempt,
                               [&](const Code& code) { return code.begin <= address && address < code.end; });
}

}  // namespace

bool called_by_exempt() noexcept try {
    return !look().exempt.empty() && trace::called_from(in_exempt_code);
} catch (const std::exception&) {
    return false;  // out of memory
}

bool ExemptKernel::is_one() noexcept {
    int left = looks_left_.load(std::memory_order_relaxed);
    if (left <= 0) return left < 0;
    if (called_by_exempt()) {
        looks_left_ = -1;
        return true;
    }
    looks_left_.compare_exchange_strong(left, left - 1);
    return false;
}

}  // namespace lms::access
