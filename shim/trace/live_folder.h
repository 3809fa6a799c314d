// The folder in which processes under the shim have their live pages, a file each: lmsshim-<uid> in
// XDG_RUNTIME_DIR, in /run/user/<uid>, or in /dev/shm. It is its user's alone; one that others may enter or
// own is not used.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shim/trace/live_page.h"

namespace lms::trace {

class LiveFolder {
  public:
    // Makes it where there is none. Without one (is_open()) nothing is found and nothing can be made.
    LiveFolder() noexcept;
    ~LiveFolder();
    LiveFolder(const LiveFolder&) = delete;
    LiveFolder& operator=(const LiveFolder&) = delete;
    bool is_open() const { return folder_ >= 0; }
    int number() const { return folder_; }  // its file descriptor, while this lives

    // A new file of `bytes`, all of which have their memory; -1 with errno. The caller closes it.
    int create(const std::string& name) const noexcept;
    void remove(const std::string& name) const noexcept;

    // Copies of the pages of this version, as they are now. May throw std::bad_alloc.
    std::vector<std::unique_ptr<LivePage>> pages() const;

    // The page of a process itself, to write requests into; null, and the reason in one line. One tool at a
    // time writes requests; another waits for five seconds at most.
    struct Unshare {
        void operator()(LivePage* page) const noexcept;
    };
    std::unique_ptr<LivePage, Unshare> share_with(pid_t process, std::string& problem) const;

    // False where that cannot be known. May throw std::bad_alloc.
    bool is_gone(const LivePage& page) const;

    // Removes the page of a process that has ended, and answers the page as it was left; null: it is removed
    // already. `seen` may be older. Writes the counters of a process that was killed, but not of one in other
    // name spaces: their path may mean another file there. May throw std::bad_alloc.
    std::unique_ptr<LivePage> take_away(const LivePage& seen) const;

    // Removes the pages of processes that have ended and for which no `lms run` waits. Writes the counters
    // (LMS_STATS) of those that were killed. May throw std::bad_alloc.
    void clean() const;

  private:
    bool nobody_has(const std::string& name) const noexcept;

    int folder_;
};

// Where it may be, the first that can be used. `runtime` is XDG_RUNTIME_DIR, or null. May throw
// std::bad_alloc.
std::vector<std::string> live_folder_places(const char* runtime, uid_t user);

// Its file's name.
std::string name_of(const LivePage& page);

}  // namespace lms::trace
