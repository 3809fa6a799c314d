// What the things of a trace are called, wherever they are shown.
#pragma once

#include <string_view>

#include "shim/trace/events.h"

namespace lms::trace {

constexpr std::string_view name_of(Direction direction) {
    return direction == Direction::In ? "in" : "out";
}

constexpr std::string_view name_of(MoveReason reason) {
    return reason == MoveReason::Needed ? "needed" : "make room";
}

constexpr std::string_view name_of(CopyWay way) {
    switch (way) {
        case CopyWay::Unknown:
            return "";
        case CopyWay::ToGpu:
            return "to the GPU";
        case CopyWay::ToHost:
            return "to the host";
        case CopyWay::OnGpu:
            return "on the GPU";
    }
    return "?";
}

constexpr std::string_view name_of(StallCause cause) {
    switch (cause) {
        case StallCause::Turn:
            return "another thread moves";
        case StallCause::CopyOut:
            return "copies to the host";
        case StallCause::InUse:
            return "memory still in use";
        case StallCause::Opaque:
            return "work that may reach anything";
        case StallCause::Mapping:
            return "mapping and enqueuing";
    }
    return "?";
}

}  // namespace lms::trace
