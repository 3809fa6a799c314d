// An object for each thread, there until the thread ends. Unlike a thread_local one it outlives the main
// thread's exit handlers: programs release what they have of the driver's there (libgomp does).
#pragma once

#include <pthread.h>

#include <memory>

namespace simcuda::driver {

template <typename T>
class PerThread {
  public:
    PerThread() {
        pthread_key_create(&key_, [](void* object) { delete static_cast<T*>(object); });
    }
    PerThread(const PerThread&) = delete;
    PerThread& operator=(const PerThread&) = delete;

    // The calling thread's; what `make()` gives where there is none yet.
    template <typename Make>
    T& get(Make&& make) {
        if (void* object = pthread_getspecific(key_)) return *static_cast<T*>(object);
        std::unique_ptr<T> made = make();
        pthread_setspecific(key_, made.get());
        return *made.release();
    }
    T& get() {
        return get([] { return std::make_unique<T>(); });
    }

  private:
    pthread_key_t key_{};
};

}  // namespace simcuda::driver
