// Addresses without memory that should have some: the driver unmapped them and refused to map them again.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <utility>

#include "shim/device/cuda_api.h"
#include "shim/util/mutex.h"

namespace lms::device {

class Missing {
  public:
    // `again()` maps what was there.
    void add(Address address, std::function<bool()> again) {
        const util::Lock lock(lock_);
        all_[address] = std::move(again);
        any_ = true;
    }
    // It needs no memory any more. False: it is none of these.
    bool forget(Address address) { return any() && static_cast<bool>(take(address)); }
    bool any() const { return any_.load(); }
    // False: it still has no memory. One thread at a time for each address.
    bool restore(Address address) LMS_UNLOCKED {
        const std::function<bool()> again = take(address);
        if (!again || again()) return true;
        add(address, again);
        return false;
    }

  private:
    std::function<bool()> take(Address address) {
        const util::Lock lock(lock_);
        const auto found = all_.find(address);
        if (found == all_.end()) return nullptr;
        std::function<bool()> again = std::move(found->second);
        all_.erase(found);
        any_ = !all_.empty();
        return again;
    }

    util::Mutex lock_{util::LockOrder::Leaf};
    std::map<Address, std::function<bool()>> all_ LMS_GUARDED_BY(lock_);
    std::atomic<bool> any_{false};
};

}  // namespace lms::device
