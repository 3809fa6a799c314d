// Memory that may not be the process's to read.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Copies what may go while it is read; false where not all of it is there. Where the kernel cannot be asked,
// it is taken to be.
inline bool copy_if_readable(void* to, const void* from, std::size_t bytes) {
    const KeepErrno keep;
    const iovec target{to, bytes};
    const iovec source{const_cast<void*>(from), bytes};
    const ssize_t copied = process_vm_readv(getpid(), &target, 1, &source, 1, 0);
    if (copied < 0 && errno != EFAULT) {
        std::memcpy(to, from, bytes);
        return true;
    }
    return copied == static_cast<ssize_t>(bytes);
}

// Copies as much of [from, from + bytes) as is there; the bytes copied. Where the kernel cannot be asked,
// what is in the page of `from` is taken to be.
inline std::size_t copy_what_is_readable(void* to, const void* from, std::size_t bytes) {
    constexpr std::size_t kPage = 4096;
    const KeepErrno keep;
    const iovec target{to, bytes};
    const iovec source{const_cast<void*>(from), bytes};
    const ssize_t copied = process_vm_readv(getpid(), &target, 1, &source, 1, 0);
    if (copied >= 0) return static_cast<std::size_t>(copied);
    const std::size_t within = std::min(bytes, kPage - reinterpret_cast<std::uintptr_t>(from) % kPage);
    std::memcpy(to, from, within);
    return within;
}

}  // namespace lms::util
