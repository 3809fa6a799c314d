#include "tools/lms/printable.h"

#include <algorithm>

namespace lms::tool {

std::string printable(std::string_view text) {
    std::string shown(text);
    std::ranges::replace_if(
        shown, [](unsigned char each) { return each < ' ' || each == 0x7f; }, '?');
    // U+0080 to U+009f, in UTF-8.
    for (std::size_t i = 0; i + 1 < shown.size(); ++i) {
        const auto next = static_cast<unsigned char>(shown[i + 1]);
        if (shown[i] == '\xc2' && next >= 0x80 && next < 0xa0) shown[i] = shown[i + 1] = '?';
    }
    return shown;
}

}  // namespace lms::tool
