#include "shim/util/units.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

namespace lms::util {
namespace {

struct Unit {
    char letter;
    std::uint64_t bytes;
};
constexpr Unit kUnits[] = {{'T', kTiB}, {'G', kGiB}, {'M', kMiB}, {'K', kKiB}, {'B', 1}};

// The unit that `suffix` names, 0 if none.
std::uint64_t unit_of(std::string_view suffix) {
    std::string upper;
    for (const char c : suffix) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    for (const Unit& unit : kUnits) {
        const std::string letter(1, unit.letter);
        if (upper == letter) return unit.bytes;
        if (unit.bytes > 1 && (upper == letter + "B" || upper == letter + "IB")) return unit.bytes;
    }
    return 0;
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(std::string_view text, std::uint64_t plain_unit) {
    const std::size_t digits = text.find_first_not_of("0123456789.");
    const std::string_view number = text.substr(0, digits);
    const std::string_view suffix = digits == text.npos ? "" : text.substr(digits);
    const std::uint64_t unit = suffix.empty() ? plain_unit : unit_of(suffix);
    if (unit == 0 || number.empty() || number.front() == '.') return std::nullopt;

    std::uint64_t whole = 0;
    const char* const end = number.data() + number.size();
    auto [next, error] = std::from_chars(number.data(), end, whole);
    if (error != std::errc{}) return std::nullopt;
    double fraction = 0;
    if (next != end) {
        const auto rest = std::from_chars(next, end, fraction);
        if (rest.ec != std::errc{} || rest.ptr != end) return std::nullopt;
    }
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(whole, unit, &bytes)) return std::nullopt;
    const auto part = static_cast<std::uint64_t>(fraction * static_cast<double>(unit));
    if (__builtin_add_overflow(bytes, part, &bytes)) return std::nullopt;
    return bytes;
}

std::uint64_t whole_bytes(double bytes) {
    if (!(bytes > 0)) return 0;
    return bytes < 0x1p64 ? static_cast<std::uint64_t>(bytes) : ~std::uint64_t{0};
}

std::string format_bytes(std::uint64_t bytes) {
    for (const Unit& unit : kUnits) {
        if (bytes < unit.bytes) continue;
        if (bytes % unit.bytes == 0) return fmt::format("{}{}", bytes / unit.bytes, unit.letter);
        // Cut, not rounded, so that what is just below the largest that fits does not come to more.
        std::string text = fmt::format("{}.{:02}", bytes / unit.bytes, bytes % unit.bytes * 100 / unit.bytes);
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') text.pop_back();
        return text + unit.letter;
    }
    return "0B";
}

}  // namespace lms::util
