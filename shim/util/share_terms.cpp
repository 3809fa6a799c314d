#include "shim/util/share_terms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <vector>

#include "shim/util/units.h"

namespace lms::util {
namespace {

bool parse_number(std::string_view text, std::uint32_t least, std::uint32_t most, std::uint32_t& target) {
    std::uint32_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || next != end || number < least || number > most) return false;
    target = number;
    return true;
}

bool parse_term(std::string_view name, std::string_view value, ShareTerms& terms) {
    if (name == "weight") return parse_number(value, 1, ShareTerms::kMostWeight, terms.weight);
    if (name == "priority") return parse_number(value, 0, ShareTerms::kMostPriority, terms.priority);
    const auto bytes = name == "min" ? parse_bytes(value) : std::nullopt;
    if (bytes) terms.least_bytes = *bytes;
    return bytes.has_value();
}

}  // namespace

std::optional<ShareTerms> parse_share_terms(std::string_view text) {
    ShareTerms terms{.asked = true};
    terms.shares = text != "off" && !text.empty();
    std::vector<std::string_view> seen;
    for (std::string_view rest = terms.shares ? text : ""; !rest.empty();) {
        const std::string_view term = rest.substr(0, rest.find(','));
        rest.remove_prefix(term.size());
        if (rest == ",") return std::nullopt;
        if (!rest.empty()) rest.remove_prefix(1);
        const std::size_t equals = term.find('=');
        if (equals == term.npos) return std::nullopt;
        const std::string_view name = term.substr(0, equals);
        for (const std::string_view other : seen)
            if (other == name) return std::nullopt;
        seen.push_back(name);
        if (!parse_term(name, term.substr(equals + 1), terms)) return std::nullopt;
    }
    return terms;
}

std::string format_share_terms(const ShareTerms& terms) {
    if (!terms.shares) return "off";
    std::vector<std::string> all;
    all.push_back(fmt::format("weight={}", terms.weight));
    if (terms.least_bytes != 0) all.push_back("min=" + format_bytes(terms.least_bytes));
    if (terms.priority != 0) all.push_back(fmt::format("priority={}", terms.priority));
    return fmt::format("{}", fmt::join(all, ","));
}

}  // namespace lms::util
