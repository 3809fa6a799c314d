// Text from elsewhere, for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace lms::tool {

// With a question mark for each character that a terminal obeys: it shows the rest.
std::string printable(std::string_view text);

}  // namespace lms::tool
