// Runs programs for the tests.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace support {

struct Result {
    int status;  // exit status, or 128 + signal
    std::string out;
    std::string err;
};

// Runs `command` (looked up on PATH) with `environment` added to this process's, or taken from it where a
// value is empty. After `seconds` it is killed (status 137).
Result run(const std::vector<std::string>& command,
           const std::map<std::string, std::string>& environment = {}, int seconds = 120);

// Folder of this build: $BUILD, else build.
std::string build_dir();

// What LD_PRELOAD names for that build's shim: first the runtime of the sanitizer it was made with, if
// $SANITIZER_RUNTIME names one.
std::string preloaded_shim();

// A file that does not exist yet, in a folder that is removed when the test program ends.
std::string scratch_file(const std::string& name);

// The whole file, empty if there is none.
std::string read_file(const std::string& path);

}  // namespace support
