#include "tools/simcuda/driver/message.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <string>

namespace simcuda::driver {

void message(const char* format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const std::string line = std::string("simcuda: ") + text + "\n";
    // One write, so that lines of several threads do not mix. Nothing can be done about a closed stderr.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace simcuda::driver
