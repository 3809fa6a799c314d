// How long a piece of work in a trace can have run on the GPU. When the host saw it end tells too little: by
// then it may have been over for long, or have waited for moves.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>

#include "tools/lms/trace_file.h"

namespace lms::tool {

class LongestTimes {
  public:
    // By the samples of that GPU. `trace` must outlive it.
    LongestTimes(const Trace& trace, int device);

    // In ns, of work that uses so many bytes; kUnknown: no samples tell.
    static constexpr std::uint64_t kUnknown = UINT64_MAX;
    std::uint64_t of(const trace::Launch& work, std::uint64_t bytes) const;

  private:
    std::unordered_map<std::string_view, std::uint64_t> kernels_;
    std::map<trace::CopyWay, double> bytes_per_ns_;  // the slow ones'
};

}  // namespace lms::tool
