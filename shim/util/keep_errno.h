// errno belongs to the program: what the shim does between two of its lines must not change it.
#pragma once

#include <cerrno>

namespace lms::util {

class KeepErrno {
  public:
    KeepErrno() noexcept : value_(errno) {}
    ~KeepErrno() { errno = value_; }
    KeepErrno(const KeepErrno&) = delete;
    KeepErrno& operator=(const KeepErrno&) = delete;

  private:
    int value_;
};

}  // namespace lms::util
