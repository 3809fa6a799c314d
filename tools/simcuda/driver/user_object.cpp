#include "tools/simcuda/driver/user_object.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/handles.h"
#include "tools/simcuda/driver/worker.h"

namespace simcuda::driver {
namespace {

Handles<UserObject>& user_objects_by_handle() {
    static auto& user_objects_by_handle = *new Handles<UserObject>;
    return user_objects_by_handle;
}

// Calls the program's functions, one after another. The process does not end under them: what they work on
// would go while they run.
class Undertaker {
  public:
    void add(CUhostFn destroy, void* object) {
        std::lock_guard lock(mutex_);
        due_.push_back({destroy, object});
        if (process_ != ::getpid()) start();
        changed_.notify_all();
    }
    void finish();

  private:
    struct Due {
        CUhostFn destroy;
        void* object;
    };

    void start();
    void loop();

    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    std::deque<Due> due_;     // the first of them is being called
    pid_t process_ = 0;       // whose thread it is; a fork has none
    std::thread::id thread_;  // that may call exit() in one of them
};

Undertaker& undertaker() {
    static auto& undertaker = *new Undertaker;
    return undertaker;
}

void Undertaker::start() {
    process_ = ::getpid();
    start_worker("simcuda-objects", [this] { loop(); });
    std::atexit([] { undertaker().finish(); });
}

void Undertaker::loop() {
    std::unique_lock lock(mutex_);
    thread_ = std::this_thread::get_id();
    for (;;) {
        changed_.wait(lock, [&] { return !due_.empty(); });
        const Due due = due_.front();
        lock.unlock();
        {
            HostFunctionScope scope;
            due.destroy(due.object);
        }
        lock.lock();
        due_.pop_front();
        changed_.notify_all();
    }
}

void Undertaker::finish() {
    std::unique_lock lock(mutex_);
    if (process_ != ::getpid() || thread_ == std::this_thread::get_id()) return;
    changed_.wait(lock, [&] { return due_.empty(); });
}

}  // namespace

void UserObject::release(unsigned count) {
    if (references_.fetch_sub(count) != count) return;
    auto keep = user_objects_by_handle().remove(this);
    undertaker().add(destroy_, object_);
}

std::shared_ptr<UserObject> create_user_object(void* object, CUhostFn destroy, unsigned references) {
    auto created = std::make_shared<UserObject>(object, destroy, references);
    user_objects_by_handle().add(created);
    return created;
}

std::shared_ptr<UserObject> checked_user_object(CUuserObject handle) {
    auto object = user_objects_by_handle().find(handle);
    require(object != nullptr, CUDA_ERROR_INVALID_VALUE);
    return object;
}

}  // namespace simcuda::driver
