// Where the real driver may be: the dynamic loader's own search, repeated.
//
// The shim answers to the name libcuda.so.1 itself, so it cannot ask the loader for that name. It asks for
// absolute paths instead, in the order in which the loader would have tried them. glibc-hwcaps subfolders are
// not searched: no driver installs there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lms::device {

// Absolute paths at which `soname` may be found, 64-bit libraries only, in the loader's order for a library
// that the main program opens: its RPATH, LD_LIBRARY_PATH as it was at process start, its RUNPATH,
// /etc/ld.so.cache, the default folders. May throw std::bad_alloc.
std::vector<std::string> loader_candidates(std::string_view soname);

// The x86-64 entries for `soname` in the image of a ld.so.cache file, in its order. An image that is not a
// cache, or is cut short, gives those that can be read safely.
std::vector<std::string> cache_entries(std::string_view image, std::string_view soname);

}  // namespace lms::device
