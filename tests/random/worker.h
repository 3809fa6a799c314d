// A thread of the program's.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace rnd {

// A thread that does what it is given, one thing after another.
struct Worker {
    std::mutex mutex;
    std::condition_variable changed;
    const std::function<void()>* body = nullptr;
    bool over = false;
    std::thread thread;

    Worker() {
        thread = std::thread([this] { serve(); });
    }
    ~Worker() {
        {
            const std::lock_guard lock(mutex);
            over = true;
        }
        changed.notify_all();
        thread.join();
    }
    void serve() {
        std::unique_lock lock(mutex);
        while (true) {
            changed.wait(lock, [&] { return body || over; });
            if (over) return;
            lock.unlock();
            (*body)();
            lock.lock();
            body = nullptr;
            changed.notify_all();
        }
    }
    void give(const std::function<void()>& what) {
        {
            const std::lock_guard lock(mutex);
            body = &what;
        }
        changed.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return !body; });
    }
};

}  // namespace rnd
