// Whose turn it is to move.
#pragma once

#include <chrono>
#include <optional>

#include "shim/migration/migrator.h"
#include "shim/migration/session_lock.h"

namespace lms::engine {

// A place in the queue of migrators; constructed, it is this thread's turn.
class Migrator::MigrationTurn {
  public:
    MigrationTurn(Migrator& migrator, SessionLock& lock) : migrator_(migrator) { await(lock); }
    ~MigrationTurn() { leave(); }
    MigrationTurn(const MigrationTurn&) = delete;
    MigrationTurn& operator=(const MigrationTurn&) = delete;

    // Lets everyone else who waits go first.
    void give_way(SessionLock& lock) {
        leave();
        await(lock);
    }

    // Its step came to nothing, or to something.
    void note(Step result) {
        if (result == Step::Moved) {
            waits_since_.reset();
        } else if (result == Step::Waited) {
            const auto now = Clock::now();
            if (!waits_since_) waits_since_ = now;
            if (now - *waits_since_ > kPatience) migrator_.starves_ = true;
        }
    }

  private:
    void await(SessionLock& lock) {
        migrator_.queue_.push_back(this);
        migrator_.state_.changed.wait(lock, [&] { return migrator_.queue_.front() == this; });
    }
    void leave() {
        migrator_.queue_.pop_front();
        migrator_.starves_ = false;
        waits_since_.reset();
        migrator_.state_.changed.notify_all();
    }

    // How long it finds nothing idle before other launches make way for it.
    static constexpr auto kPatience = std::chrono::milliseconds(10);

    Migrator& migrator_;
    std::optional<Clock::time_point> waits_since_;
};

}  // namespace lms::engine
