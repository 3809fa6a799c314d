// Work that a stream is to take as one although it is submitted in pieces: nothing that other threads submit
// lands between two of them, nor in the legacy stream, where the two wait for one another. Streams are told
// apart by a hash, so that two may count as one.
#pragma once

#include "shim/device/cuda_api.h"

namespace lms::session {

// While it lives, the thread submits to `stream`. Waits for another that does so in pieces, as long as it
// gets further. Who waits for all work is told of what goes to the thread's own stream, which no other thread
// can ask.
class Submitting {
  public:
    explicit Submitting(CUstream stream);
    ~Submitting();
    Submitting(const Submitting&) = delete;
    Submitting& operator=(const Submitting&) = delete;

  private:
    CUstream stream_;
};

// While it lives, the thread submits to `stream` in pieces. Waits for others that submit there; false where
// they get no further.
class SubmittingPieces {
  public:
    explicit SubmittingPieces(CUstream stream);
    ~SubmittingPieces();
    SubmittingPieces(const SubmittingPieces&) = delete;
    SubmittingPieces& operator=(const SubmittingPieces&) = delete;
    explicit operator bool() const { return granted_; }
    // One of them is submitted.
    void submitted();

  private:
    bool take();

    CUstream stream_;
    bool granted_;
};

}  // namespace lms::session
