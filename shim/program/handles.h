// Handles of one kind that the program has: who uses one, and who is about to destroy it.
//
// A handle is known from the call that made it to the end of the call that destroys it:
//
//   unknown --enter--> known --Retire--> retired --> unknown, or known again after keep()
//
// 1. A thread that gives a handle to the driver on its own account holds a Use meanwhile. None is granted
//    of a handle that is retired or unknown.
// 2. A Retire waits for the Uses that were granted before it, for bounds::kOtherThread at most: the driver
//    call of one may wait for work of this thread's.
// 3. The driver may give a handle out again before the call that destroyed it has returned. So entries are
//    told apart by more than their handles: enter() replaces, and a Use, Retire or Alone ends on the entry
//    that it began with.
// 4. An Alone excludes others of its handle, and waits for them without a bound. It is for handles of the
//    shim's own, which the program's calls change.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shim/util/bounds.h"
#include "shim/util/mutex.h"

namespace lms::program {

// `Value` is what is noted of a handle. A kind with more to guard derives from its table.
template <typename Handle, typename Value>
class Handles {
    struct Entry {
        Value value;
        unsigned uses = 0;
        unsigned retirements = 0;
        bool destroyed = false;
        bool alone = false;
    };
    using EntryPtr = std::shared_ptr<Entry>;

  public:
    Handles() = default;
    Handles(const Handles&) = delete;
    Handles& operator=(const Handles&) = delete;

    util::Mutex mutex{util::LockOrder::Table};
    util::Condition changed;  // some use or end of a handle is over

    // Null if it is not known.
    Value* find(Handle handle) LMS_REQUIRES(mutex) {
        const EntryPtr& entry = entry_of(handle);
        return entry ? &entry->value : nullptr;
    }
    Value& enter(Handle handle, Value value) LMS_REQUIRES(mutex) {
        EntryPtr& entry = entries_[handle];
        entry = std::make_shared<Entry>(Entry{std::move(value)});
        return entry->value;
    }
    Value& find_or_enter(Handle handle) LMS_REQUIRES(mutex) {
        Value* const known = find(handle);
        return known ? *known : enter(handle, {});
    }
    bool forget(Handle handle) LMS_REQUIRES(mutex) { return entries_.erase(handle) > 0; }
    // Forgets the handle; what was noted of it.
    std::optional<Value> take(Handle handle) LMS_REQUIRES(mutex) {
        const EntryPtr entry = entry_of(handle);
        if (!entry) return std::nullopt;
        forget(handle);
        return std::move(entry->value);
    }
    // Calls `visit(handle, value)` for each, in no order.
    template <typename Visit>
    void each(Visit&& visit) LMS_REQUIRES(mutex) {
        for (auto& [handle, entry] : entries_) visit(handle, entry->value);
    }
    // Forgets those of which `is_gone(handle, value)`.
    template <typename IsGone>
    std::vector<Handle> forget_if(IsGone&& is_gone) LMS_REQUIRES(mutex) {
        std::vector<Handle> gone;
        std::erase_if(entries_, [&](const auto& each) {
            if (!is_gone(each.first, std::as_const(each.second->value))) return false;
            gone.push_back(each.first);
            return true;
        });
        return gone;
    }

    class Use;
    class Retire;
    class Alone;

  private:
    const EntryPtr& entry_of(Handle handle) const LMS_REQUIRES(mutex) {
        const auto it = entries_.find(handle);
        return it == entries_.end() ? kNone : it->second;
    }
    void forget(Handle handle, const EntryPtr& entry) LMS_REQUIRES(mutex) {
        if (entry_of(handle) == entry) forget(handle);
    }

    static inline const EntryPtr kNone;

    std::unordered_map<Handle, EntryPtr> entries_ LMS_GUARDED_BY(mutex);
};

// While it lives the handle can be given to the driver; false if it is unknown, or retired still after
// `patience`.
template <typename Handle, typename Value>
class Handles<Handle, Value>::Use {
  public:
    Use(Handles& all, Handle handle, std::chrono::nanoseconds patience = {}) : all_(all) {
        util::Lock lock(all.mutex);
        const auto is_settled = [&]() LMS_REQUIRES(all_.mutex) {
            entry_ = all_.entry_of(handle);
            return !entry_ || entry_->retirements == 0;
        };
        if (!is_settled() && patience.count() > 0) all.changed.wait_for(lock, patience, is_settled);
        granted_ = entry_ && entry_->retirements == 0;
        if (granted_) ++entry_->uses;
    }
    ~Use() {
        if (!granted_) return;
        const util::Lock lock(all_.mutex);
        --entry_->uses;
        if (entry_->retirements > 0) all_.changed.notify_all();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return granted_; }

  private:
    Handles& all_;
    EntryPtr entry_ LMS_GUARDED_BY(all_.mutex);
    bool granted_;
};

// From before the call that destroys the handle to its end; false if it was not known. Forgets the handle at
// the latest when it ends.
template <typename Handle, typename Value>
class Handles<Handle, Value>::Retire {
  public:
    Retire(Handles& all, Handle handle) : all_(all), handle_(handle) {
        util::Lock lock(all.mutex);
        entry_ = all.entry_of(handle);
        known_ = entry_ != nullptr;
        if (!known_) return;
        ++entry_->retirements;
        all.changed.wait_for(lock, bounds::kOtherThread,
                             [&]() LMS_REQUIRES(all_.mutex) { return entry_->uses == 0; });
    }
    ~Retire() {
        const util::Lock lock(all_.mutex);
        if (!entry_) return;
        entry_->destroyed = true;
        all_.forget(handle_, entry_);
        all_.changed.notify_all();
    }
    Retire(const Retire&) = delete;
    Retire& operator=(const Retire&) = delete;
    explicit operator bool() const { return known_; }

    void forget() {
        const util::Lock lock(all_.mutex);
        if (entry_) all_.forget(handle_, entry_);
    }
    // Last: the driver has not destroyed it. It is known again, unless another thread has destroyed it, or
    // another has the handle by now.
    void keep() {
        const util::Lock lock(all_.mutex);
        if (!entry_) return;
        --entry_->retirements;
        if (!entry_->destroyed) all_.entries_.emplace(handle_, entry_);
        entry_ = nullptr;
        all_.changed.notify_all();
    }

  private:
    Handles& all_;
    Handle handle_;
    EntryPtr entry_ LMS_GUARDED_BY(all_.mutex);  // null after keep()
    bool known_;
};

// While it lives no other thread has one of this handle, and what is noted of the handle is this thread's;
// false if it is not known.
template <typename Handle, typename Value>
class Handles<Handle, Value>::Alone {
  public:
    Alone(Handles& all, Handle handle) : all_(all), handle_(handle) {
        util::Lock lock(all.mutex);
        all.changed.wait(lock, [&]() LMS_REQUIRES(all_.mutex) {
            entry_ = all_.entry_of(handle_);
            return !entry_ || !entry_->alone;
        });
        if (entry_) entry_->alone = true;
    }
    ~Alone() {
        if (!entry_) return;
        const util::Lock lock(all_.mutex);
        entry_->alone = false;
        all_.changed.notify_all();
    }
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;
    explicit operator bool() const { return entry_ != nullptr; }

    Value* get() const { return entry_ ? &entry_->value : nullptr; }
    Value* operator->() const { return get(); }
    Value& operator*() const { return *get(); }
    void forget() {
        const util::Lock lock(all_.mutex);
        all_.forget(handle_, entry_);
    }

  private:
    Handles& all_;
    Handle handle_;
    EntryPtr entry_;  // what is noted of it is this thread's, the rest the lock's
};

// The process's. Never destroyed: exit handlers of other libraries destroy handles too.
template <typename Table>
Table& only() {
    static Table& instance = *new Table;
    return instance;
}

}  // namespace lms::program
