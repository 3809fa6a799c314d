// The app's streams. Work submitted while nothing moved left no fences, so once something is to move, every
// stream that may still hold some is asked.
#pragma once

#include <memory>
#include <vector>

#include "shim/device/cuda_api.h"

namespace lms::engine {

// Thread-safe, for the process: a stream may be older than any session.
void stream_created(CUstream stream, CUcontext context);
// Its streams are gone with it: those that were known.
std::vector<CUstream> streams_destroyed_with(CUcontext context);

struct KnownStream {
    CUstream stream;
    CUcontext context;
};
// Streams created and not destroyed.
std::vector<KnownStream> known_streams();
// The context of one of them; null if it is none.
CUcontext context_of_known(CUstream stream);

struct StreamEntry;

// While it lives, the handle of a stream that another thread may destroy can be given to the driver; false if
// the stream is gone, or about to go.
class StreamUse {
  public:
    explicit StreamUse(CUstream stream);
    ~StreamUse();
    StreamUse(const StreamUse&) = delete;
    StreamUse& operator=(const StreamUse&) = delete;
    explicit operator bool() const { return entry_ != nullptr; }

  private:
    std::shared_ptr<StreamEntry> entry_;
};

// A stream about to be destroyed: nobody uses it any more. (Waits for that, at most a second: the driver call
// of a user might wait for work of this thread's.) False if it was not known.
class StreamEnd {
  public:
    explicit StreamEnd(CUstream stream);
    ~StreamEnd() { unlist(); }
    StreamEnd(const StreamEnd&) = delete;
    StreamEnd& operator=(const StreamEnd&) = delete;
    // What it was given has been fenced: known_streams() has it no more. Until then it does, or a session
    // that asked for them meanwhile would take its work for over.
    void unlist();
    // The driver did not destroy it.
    void refused();
    explicit operator bool() const { return entry_ != nullptr; }

  private:
    CUstream stream_;
    std::shared_ptr<StreamEntry> entry_;
};

}  // namespace lms::engine
