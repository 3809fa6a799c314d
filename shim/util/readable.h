// Memory that may not be the process's to read.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "shim/util/keep_errno.h"

namespace lms::util {

// Whether reading the byte at that address is no fault. Where the kernel cannot be asked, it counts as none.
inline bool is_readable(std::uint64_t address) {
    const KeepErrno keep;
    char byte = 0;
    const iovec to{&byte, 1};
    const iovec from{reinterpret_cast<void*>(address), 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

}  // namespace lms::util
