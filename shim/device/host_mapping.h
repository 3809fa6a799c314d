// Whether the driver may be asked for host memory behind device addresses. Drivers have crashed inside that
// very call (NVIDIA/nccl#2106, vllm-project/vllm#27868). So another process makes it first (`lms
// self-check`), and tries whether such memory works.
#pragma once

#include <string>
#include <string_view>

#include "shim/device/cuda_api.h"

namespace lms::device {

struct ToldApart {
    bool may_probe;            // the driver may be asked
    bool remaps_wait = false;  // the process apart has found remaps to wait for all work
};
// By LMS_HOST_MAPPING. `auto` asks the process apart, or what it answered before for this driver and device;
// where there is no such program, or it could not try, yes. A no is reported to the user, once. No context is
// needed. May take as long as that process.
ToldApart told_apart(CUdevice device) noexcept;

// What the process apart writes, one line: the first of these that fits, the second and third with a step's
// name.
inline constexpr std::string_view kWorksInPlace = "in place";
inline constexpr std::string_view kNotInPlace = "not in place: ";
inline constexpr std::string_view kNothingMoves = "nothing moves: ";
inline constexpr std::string_view kNotMapped = "not mapped";
inline constexpr std::string_view kNotTried = "not tried: ";
// Behind the first three, where it is so.
inline constexpr std::string_view kRemapsWait = "; remaps wait for all work";
// Where the driver ended the process that tried it.
inline constexpr std::string_view kDied = "died";

}  // namespace lms::device
