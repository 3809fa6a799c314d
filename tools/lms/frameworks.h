// What `lms run` sets for a framework when it is asked to: settings under which the framework allocates in a
// way that the shim can do more with. Never unasked, for they change how the framework behaves.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lms::tool {

struct FrameworkOption {
    std::string_view option;   // of `lms run`, without the dashes
    std::string_view meaning;  // one sentence without a full stop
    std::string_view setting;  // what is put into each variable
    // Where the program reads it; the first that is set there wins, so all are set.
    std::span<const std::string_view> variables;
    // The variables hold a list, of which the setting is one entry "key:value".
    bool is_list = false;
};

std::span<const FrameworkOption> framework_options();

// The value of `variable` with the option's setting, given the value it has (may be empty). Empty, and why in
// `problem`, where that already says otherwise.
std::string with_option(const FrameworkOption& option, std::string_view variable, std::string_view before,
                        std::string& problem);

}  // namespace lms::tool
