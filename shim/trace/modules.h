// The programs and libraries that call sites name, so that a reader of the trace finds their symbols.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lms::trace {

struct Module {
    std::string name;  // as call sites have it: the file's, without its folder
    std::string path;  // absolute
    std::string id;    // its build id in hexadecimal; where it has none what version_of says of the file
};

// Those that are loaded now. Takes the dynamic loader's lock. May throw std::bad_alloc.
std::vector<Module> loaded_modules();

// A file's size and the time of its last change; empty if there is none.
std::string version_of(const std::string& path);

// The build id in the notes of an ELF file (a segment PT_NOTE); empty if there is none.
std::string build_id_in(std::string_view notes);

}  // namespace lms::trace
