// The callers as the author of a Python program knows them: files and lines of the interpreter's frames.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lms::trace {

struct PythonFrames {
    std::vector<std::string> frames;    // innermost first, as Python's tracebacks have them
    const void* interpreter = nullptr;  // some code of it; null: the thread runs no Python
};

// Those of the calling thread, at most `most`, of CPython 3.9 to 3.13. The thread need not hold the GIL: most
// that allocate have released it. May throw std::bad_alloc.
PythonFrames python_frames(std::size_t most);

// Whether a frame of a call site is one of these.
inline bool is_python(std::string_view frame) {
    return frame.starts_with("File \"");
}

// Of a call site, where the frames begin that its program's author knows best: Python's, if there are any.
inline std::size_t first_telling(std::span<const std::string> frames) {
    const auto python = std::ranges::find_if(frames, is_python);
    return python == frames.end() ? 0 : static_cast<std::size_t>(python - frames.begin());
}

}  // namespace lms::trace
