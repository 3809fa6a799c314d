// lms settings: every variable, what it means and what it is now.
#pragma once

namespace lms::tool {

// Prints them to stdout, as text or as a JSON array; what is wrong with the environment's values goes to
// stderr.
void show_settings(bool as_json);

}  // namespace lms::tool
