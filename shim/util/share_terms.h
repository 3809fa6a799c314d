// On which terms a process shares a GPU: LMS_SHARE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lms::util {

struct ShareTerms {
    static constexpr std::uint32_t kMostWeight = 1000;
    static constexpr std::uint32_t kMostPriority = 100;
    static constexpr std::string_view kAccepted =
        "weight=1 to 1000, min=SIZE, priority=0 to 100, with commas between";

    bool shares = true;  // else as if it were alone
    bool asked = false;  // by the user: a problem is logged at warn, else at info
    std::uint32_t weight =
        1;  // 1 to kMostWeight: of two that want more than there is, one of 2 gets twice as much
    std::uint64_t least_bytes = 0;  // kept for it
    std::uint32_t priority = 0;     // to kMostPriority

    bool operator==(const ShareTerms&) const = default;
};

// What the user asked for: "weight=2,min=4G,priority=1", each at most once and in any order, or "off".
// Nothing if it is anything else.
std::optional<ShareTerms> parse_share_terms(std::string_view text);

// A form that parse_share_terms reads.
std::string format_share_terms(const ShareTerms& terms);

}  // namespace lms::util
