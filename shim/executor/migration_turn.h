// Whose turn it is to move.
#pragma once

#include <optional>
#include <utility>

#include "shim/executor/migrator.h"
#include "shim/executor/own_moves.h"
#include "shim/executor/session_lock.h"
#include "shim/util/bounds.h"

namespace lms::executor {

// A place in the queue of migrators; constructed, it is this thread's turn.
class Migrator::MigrationTurn {
  public:
    MigrationTurn(Migrator& migrator, SessionLock& lock) LMS_LOCKED : migrator_(migrator) { await(lock); }
    ~MigrationTurn() {
        starves(false);
        leave();
    }
    MigrationTurn(const MigrationTurn&) = delete;
    MigrationTurn& operator=(const MigrationTurn&) = delete;

    // Lets everyone else who waits go first.
    void give_way(SessionLock& lock) LMS_LOCKED {
        leave();
        await(lock);
    }

    // Its step came to nothing, or to something.
    void note(Step result) {
        if (result == Step::Moved) {
            waits_since_.reset();
            starves(false);
        } else if (result == Step::Waited) {
            const auto now = Clock::now();
            if (!waits_since_) waits_since_ = now;
            if (now - *waits_since_ > bounds::kStarving) starves(true);
        }
    }
    // Whether it has found nothing idle for long, and others wait: their moves may need nothing that is in
    // use. Without host memory in place the first comes first, or one that needs much would never get it.
    bool holds_others_up() const {
        return starves_ && migrator_.queue_.size() > 1 && migrator_.core_.port.maps_host_memory();
    }

  private:
    void await(SessionLock& lock) LMS_LOCKED {
        refuse_to_wait_for_oneself(&migrator_);
        before_ = std::exchange(moves_by, &migrator_);
        migrator_.queue_.push_back(this);
        migrator_.core_.changed.wait(lock, [&] { return migrator_.queue_.front() == this; });
    }
    void leave() {
        moves_by = before_;
        migrator_.queue_.pop_front();
        migrator_.core_.changed.notify_all();
    }
    void starves(bool now) {
        if (std::exchange(starves_, now) != now) migrator_.starving_ += now ? 1 : -1;
    }

    Migrator& migrator_;
    const Migrator* before_ = nullptr;  // of another GPU
    std::optional<Clock::time_point> waits_since_;
    bool starves_ = false;
};

}  // namespace lms::executor
