// The set of live objects of one kind, so that a stale or made-up handle is an error instead of a crash.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace simcuda::driver {

// Thread-safe. A handle is the object's address; the table owns one reference.
template <class Object>
class Handles {
  public:
    Object* add(std::shared_ptr<Object> object) {
        std::lock_guard lock(mutex_);
        Object* handle = object.get();
        objects_.emplace(handle, std::move(object));
        return handle;
    }

    // Null for anything that is not a live handle.
    std::shared_ptr<Object> find(const void* handle) const {
        std::lock_guard lock(mutex_);
        auto it = objects_.find(handle);
        return it == objects_.end() ? nullptr : it->second;
    }

    // Takes the object out of the table; null if it was not there.
    std::shared_ptr<Object> remove(const void* handle) {
        std::lock_guard lock(mutex_);
        auto it = objects_.find(handle);
        if (it == objects_.end()) return nullptr;
        auto object = std::move(it->second);
        objects_.erase(it);
        return object;
    }

    template <class Predicate>
    std::vector<std::shared_ptr<Object>> select(Predicate predicate) const {
        std::vector<std::shared_ptr<Object>> chosen;
        std::lock_guard lock(mutex_);
        for (const auto& [handle, object] : objects_) {
            if (predicate(*object)) chosen.push_back(object);
        }
        return chosen;
    }

    template <class Predicate>
    void remove_if(Predicate predicate) {
        std::lock_guard lock(mutex_);
        std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
    }

  private:
    mutable std::mutex mutex_;
    std::unordered_map<const void*, std::shared_ptr<Object>> objects_;
};

}  // namespace simcuda::driver
