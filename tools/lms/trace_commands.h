// The commands about traces. Each returns an exit status (exit_codes.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lms::tool {

struct ReportOptions {
    std::string path;
    bool as_json = false;
    std::string html;  // a file to write; empty: none
};
int report(const ReportOptions& options);

struct ReplayOptions {
    std::string path;
    std::vector<std::string> policies;
    std::vector<std::string> limits;  // sizes; none: as the program had
    std::string link;                 // bytes a second each way; empty: as measured
    std::optional<double> fail_above;
    bool as_json = false;
};
// What is wrong with the options, in one line; empty if nothing is.
std::string refuse(const ReplayOptions& options);
int replay_command(const ReplayOptions& options);

int diff(const std::string& before, const std::string& after, bool as_json);

struct ExportOptions {
    std::string path;
    bool perfetto = false;
    bool csv = false;
    bool parquet = false;
    std::string output;  // empty: stdout
};
int export_trace(const ExportOptions& options);

// Recording in a program that runs.
struct RecordOptions {
    int process = 0;
    bool starts = false;  // else stops
    std::string path;     // empty: named after the process
    std::string size;     // of each file; empty: any
};
// What is wrong with the options, in one line; empty if nothing is.
std::string refuse(const RecordOptions& options);
int record(const RecordOptions& options);

}  // namespace lms::tool
