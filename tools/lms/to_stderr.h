// What a command says beside its answer.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace lms::tool {

// Where stderr is closed or full nobody can be told, and the command goes on.
template <typename... Values>
void to_stderr(fmt::format_string<Values...> format, Values&&... values) {
    const std::string text = fmt::format(format, std::forward<Values>(values)...);
    static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

}  // namespace lms::tool
