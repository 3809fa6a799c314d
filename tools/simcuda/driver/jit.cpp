#include "tools/simcuda/driver/jit.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace simcuda::driver {

JitLog::JitLog(unsigned count, const CUjit_option* options, void** values) {
    for (unsigned i = 0; i < count; ++i) {
        // Options pass numbers as pointers.
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer_ = static_cast<char*>(values[i]);
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
            capacity_ = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(values[i]));
            size_ = &values[i];
        }
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = nullptr;  // nothing was written
    }
    write({});
}

void JitLog::write(std::string_view errors) {
    std::size_t written = 0;
    if (buffer_ && capacity_ != 0) {
        written = std::min(errors.size(), capacity_ - 1);
        std::memcpy(buffer_, errors.data(), written);
        buffer_[written] = '\0';
    }
    if (size_) *size_ = reinterpret_cast<void*>(static_cast<std::uintptr_t>(written));
}

}  // namespace simcuda::driver
