// Answers that are kept for later processes of the same user, in $XDG_CACHE_HOME/lmsshim or ~/.cache/lmsshim.
#pragma once

#include <string>
#include <string_view>

namespace lms::util {

// What was kept under `key`, one line of text. Empty: nothing was kept in the last week, or another user
// could have written it. `kind` is a part of the file's name. None in a program with more rights than its
// user. May throw std::bad_alloc.
std::string cached_answer(std::string_view kind, const std::string& key);
void keep_answer(std::string_view kind, const std::string& key, std::string_view answer);

}  // namespace lms::util
