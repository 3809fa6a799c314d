// lms: the command line of lmsshim.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "shim/util/settings.h"
#include "tools/lms/demo.h"
#include "tools/lms/doctor.h"
#include "tools/lms/exit_codes.h"
#include "tools/lms/plan_command.h"
#include "tools/lms/run.h"
#include "tools/lms/self_check.h"
#include "tools/lms/set.h"
#include "tools/lms/show_settings.h"
#include "tools/lms/to_stderr.h"
#include "tools/lms/top.h"
#include "tools/lms/trace_commands.h"

namespace lms::tool {
namespace {

struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A number above 0, or from 0 on, and no larger than an int may be. CLI11's own checks let "nan" pass.
CLI::Validator number(bool with_zero) {
    const auto check = [with_zero](const std::string& text) {
        constexpr double kMost = std::numeric_limits<int>::max();
        double value = 0;
        const char* const end = text.data() + text.size();
        const auto [at, error] = std::from_chars(text.data(), end, value);
        const bool is_one = error == std::errc() && at == end && std::isfinite(value);
        if (is_one && value > kMost) return fmt::format("{} is above {}", text, kMost);
        if (is_one && (value > 0 || (with_zero && value == 0))) return std::string();
        return fmt::format("\"{}\" is no number {}", text, with_zero ? "from 0 on" : "above 0");
    };
    return {check, ""};
}

struct RunHelp : CLI::Formatter {
    std::string make_usage(const CLI::App*, std::string name) const override {
        return "Usage: " + name + " [OPTIONS] [--] PROGRAM [ARGUMENTS]\n";
    }
};

void add_run_options(CLI::App& command, RunOptions& options) {
    command.prefix_command();
    command.formatter(std::make_shared<RunHelp>());
    command
        .add_option("--summary", options.summary, "What is said at the end: text, json or off; default: text")
        ->type_name("HOW");
    command.add_flag("--sim", options.simulated,
                     "Run on the simulated GPU; --limit 50% is then a share of what the program takes");
    command.add_option("--sim-memory", options.simulated_memory, "Memory of the simulated GPU")
        ->type_name("SIZE")
        ->needs("--sim");
    for (const Setting& setting : settings_table()) {
        const std::string name(setting.option);
        if (setting.value.empty()) {
            command.add_flag_callback(
                "--" + name, [&options, name] { options.settings[name] = "1"; },
                std::string(setting.meaning));
            continue;
        }
        command
            .add_option_function<std::string>(
                "--" + name, [&options, name](const std::string& value) { options.settings[name] = value; },
                fmt::format("{}; default: {}", setting.meaning, setting.fallback))
            ->type_name(std::string(setting.value));
    }
}

struct PlanHelp : CLI::Formatter {
    std::string make_usage(const CLI::App*, std::string name) const override {
        return "Usage: " + name + " [OPTIONS] TRACE | STEP.txt | -- PROGRAM [ARGUMENTS]\n";
    }
};

void add_plan_options(CLI::App& command, PlanOptions& options) {
    command.formatter(std::make_shared<PlanHelp>());
    command.add_option("INPUT", options.path,
                       "What LMS_TRACE wrote, or a recorded step (tools/experiments/steps); else the program "
                       "behind -- runs on the simulated GPU");
    command
        .add_option(
            "--gpu", options.gpus,
            "NAME, or NAME,MEMORY,LINK[,LINK]: a size, and 1e9 bytes a second to the GPU and from it; "
            "may be given again; default: all that are known")
        ->type_name("GPU")
        ->allow_extra_args(false);
    command.add_option("--size", options.size, "Of a recorded step, its n")
        ->type_name("N")
        ->check(number(false));
    command
        .add_option("--kernel-ms", options.kernel_ms, "Time of each kernel; default: modelled, or measured")
        ->type_name("MS")
        ->check(number(true));
    command
        .add_option("--context", options.context,
                    "What CUDA takes of the GPU; default: 448M, of small GPUs a thirty-second")
        ->type_name("SIZE");
    command
        .add_option("--sim-memory", options.memory,
                    "Memory of the simulated GPU that the program runs on; default: half of this machine's")
        ->type_name("SIZE");
    command
        .add_option("--seconds", options.seconds, "End the program after so many; default: it ends by itself")
        ->type_name("N")
        ->check(number(false));
    command.add_flag("--json", options.as_json, "Print JSON");
    command.add_option("--html", options.html, "Write a page with curves, too")->type_name("FILE");
}

// The commands about traces; `options` of those that were given.
struct TraceCommands {
    explicit TraceCommands(CLI::App& app)
        : report_command(*app.add_subcommand("report", "Say what limited a traced run, and what would help")),
          replay_command_(*app.add_subcommand("replay", "Move what a traced run used by other policies")),
          diff_command(*app.add_subcommand("diff", "Compare two traced runs")),
          export_command(*app.add_subcommand("export", "Write a trace in a format of others")),
          record_command(*app.add_subcommand("trace", "Start or stop the trace of a running program")) {
        report_command.add_option("TRACE", report_options.path, "What LMS_TRACE wrote")->required();
        report_command.add_flag("--json", report_options.as_json, "Print JSON");
        report_command.add_option("--html", report_options.html, "Write a page with pictures, too")
            ->type_name("FILE");

        replay_command_.add_option("TRACE", replay_options.path, "What LMS_TRACE wrote")->required();
        replay_command_
            .add_option("--policy", replay_options.policies,
                        "Policies, by name or path, with commas between; default: the run's own. Beside them "
                        "stand the fewest bytes and the least time")
            ->delimiter(',')
            ->type_name("NAME");
        replay_command_
            .add_option("--limit", replay_options.limits,
                        "GPU memory to fill, with commas between; default: as the run had")
            ->delimiter(',')
            ->type_name("SIZE");
        replay_command_
            .add_option("--link", replay_options.link,
                        "Bytes a second each way; default: as the device was seen to copy, else 25G")
            ->type_name("SIZE");
        replay_command_
            .add_option("--fail-above", replay_options.fail_above,
                        "Exit with 1 if a policy moves more than so many times the fewest bytes")
            ->type_name("RATIO")
            ->check(number(false));
        replay_command_.add_flag("--json", replay_options.as_json, "Print JSON");

        diff_command.add_option("BEFORE", before, "A trace")->required();
        diff_command.add_option("AFTER", after, "Another")->required();
        diff_command.add_flag("--json", diff_as_json, "Print JSON");

        export_command.add_option("TRACE", export_options.path, "What LMS_TRACE wrote")->required();
        auto* const perfetto = export_command.add_flag("--perfetto", export_options.perfetto,
                                                       "JSON for ui.perfetto.dev (default)");
        auto* const csv =
            export_command.add_flag("--csv", export_options.csv, "One line an event")->excludes(perfetto);
        export_command.add_flag("--parquet", export_options.parquet, "Parquet, by Python's pyarrow")
            ->excludes(perfetto)
            ->excludes(csv);
        export_command.add_option("-o,--output", export_options.output, "Where to; default: stdout")
            ->type_name("FILE");

        record_command.add_option("PID", record_options.process, "The process")
            ->required()
            ->check(number(false));
        record_command
            .add_option_function<std::string>(
                "ACTION", [this](const std::string& word) { record_options.starts = word == "start"; },
                "start, stop")
            ->required()
            ->check(CLI::IsMember({"start", "stop"}));
        record_command.add_option("FILE", record_options.path,
                                  "What it is written to; default: lmsshim-PID.trace");
        record_command
            .add_option("--size", record_options.size,
                        "Begin another file, FILE.1 and so on, when one is so large")
            ->type_name("SIZE");
    }

    // What is wrong with the options, in one line; empty if nothing is.
    std::string refuse() const {
        if (record_command.parsed()) return tool::refuse(record_options);
        return tool::refuse(replay_options);
    }

    std::optional<int> run() const {
        if (report_command.parsed()) return report(report_options);
        if (replay_command_.parsed()) return replay_command(replay_options);
        if (diff_command.parsed()) return diff(before, after, diff_as_json);
        if (export_command.parsed()) return export_trace(export_options);
        if (record_command.parsed()) return record(record_options);
        return {};
    }

    CLI::App& report_command;
    CLI::App& replay_command_;
    CLI::App& diff_command;
    CLI::App& export_command;
    CLI::App& record_command;
    ReportOptions report_options;
    ReplayOptions replay_options;
    ExportOptions export_options;
    RecordOptions record_options;
    std::string before;
    std::string after;
    bool diff_as_json = false;
};

// What is left of the words before "--" once the options are taken, and what follows it.
std::vector<std::string> program_of(const CLI::App& command, const std::vector<std::string>& after) {
    std::vector<std::string> program = command.remaining();
    if (!program.empty() && program[0].starts_with('-')) throw UsageError("no option " + program[0]);
    if (program.empty() && after.size() > 1) return {after.begin() + 1, after.end()};
    if (program.empty()) throw UsageError("no program given");
    program.insert(program.end(), after.begin(), after.end());
    return program;
}

// "help" and "help COMMAND" are other words for "--help" and "COMMAND --help".
void take_help(std::vector<std::string>& words) {
    if (words.empty() || words[0] != "help") return;
    words.erase(words.begin());
    words.emplace_back("--help");
}

// An option of lms that is given nothing behind its "=" would take the next word for its value. What follows
// a program's name is the program's.
void refuse_empty(const CLI::App& app, std::span<const std::string> words) {
    const auto named = app.get_subcommands(
        [&](const CLI::App* one) { return !words.empty() && one->get_name() == words[0]; });
    if (named.empty()) return;
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (!word.starts_with("-")) {
            if (named[0]->get_prefix_command()) return;
            continue;
        }
        const std::size_t equals = word.find('=');
        const CLI::Option* const option = named[0]->get_option_no_throw(word.substr(0, equals));
        if (!option || option->get_items_expected_max() == 0) continue;
        if (equals == std::string::npos)
            ++i;
        else if (equals + 1 == word.size())
            throw UsageError(fmt::format("{}: expected a value behind the =", word));
    }
}

int no_command(const std::vector<std::string>& given) {
    to_stderr(
        "lms: {}; expected run, demo, plan, top, set, trace, report, replay, diff, export, settings or "
        "doctor (lms --help)\n",
        given.empty() ? "no command" : "no command " + given[0]);
    return kUsage;
}

int main(std::vector<std::string> words) {
    take_help(words);
    // The program's own arguments must reach it as they are, so the parser never sees what follows the first
    // "--".
    const auto separator = std::ranges::find(words, "--");
    const std::vector<std::string> after(separator, words.end());
    words.erase(separator, words.end());

    CLI::App app("Makes a GPU look larger than it is, for programs that do not know of it.", "lms");
    app.set_version_flag("--version", "lms " LMS_VERSION);
    app.require_subcommand(1);
    // words: the list of all exit codes, wrapped by the parser
    app.footer(
        "Exit status: 0 done; 1 not well (what doctor finds, replay --fail-above, no such process, a demo "
        "that shows something else); 2 wrong use, or a file that is no trace; 125 a part of lmsshim is "
        "missing, or nothing can be written; 126 and 127 the program cannot be run, or is not there. "
        "Otherwise run ends as its program does.");
    RunOptions run_options;
    bool as_json = false;
    bool simulated = false;
    bool tries = false;
    int watched = 0;
    int changed = 0;
    std::vector<std::string> changes;
    std::string bus_id;
    DemoOptions demo_options;
    PlanOptions plan_options;
    CLI::App& run_command = *app.add_subcommand("run", "Run a program with a larger GPU");
    CLI::App& demo_command =
        *app.add_subcommand("demo", "Train a model on a big GPU, a small one, and that with the shim");
    CLI::App& plan_command =
        *app.add_subcommand("plan", "Say whether a program fits other GPUs, and how slow it is there");
    CLI::App& settings_command = *app.add_subcommand("settings", "List every setting and its value now");
    CLI::App& doctor_command = *app.add_subcommand("doctor", "Check whether the shim can work here");
    CLI::App& top_command = *app.add_subcommand("top", "Show what processes under the shim are doing");
    CLI::App& set_command =
        *app.add_subcommand("set", "Change a running program's limit, share, policy or log; pause it");
    TraceCommands traces(app);
    CLI::App& check_command = *app.add_subcommand("self-check", "What doctor --check runs for each GPU");
    check_command.group("");  // not in the help
    check_command.add_option("GPU", bus_id)->required();
    add_run_options(run_command, run_options);
    add_plan_options(plan_command, plan_options);
    demo_command
        .add_option("TEXT", demo_options.texts, "Files to train on; default: lmsshim's own documents")
        ->check(CLI::ExistingFile);
    demo_command.add_option("--steps", demo_options.steps, "Training steps; default: 120")
        ->type_name("N")
        ->check(number(false));
    settings_command.add_flag("--json", as_json, "Print JSON");
    doctor_command.add_flag("--json", as_json, "Print JSON");
    top_command.add_flag("--json", as_json, "Print JSON, once");
    top_command.add_option("PID", watched, "This process alone")->check(number(false));
    set_command.add_option("PID", changed, "The process")->required()->check(number(false));
    set_command
        .add_option("CHANGE", changes,
                    "limit=SIZE or none (of each GPU), share=TERMS (as LMS_SHARE), policy=NAME, log=LEVEL, "
                    "pause (its memory leaves the GPU, its work waits), resume")
        ->required();
    doctor_command.add_flag("--sim", simulated, "Look at the simulated GPU");
    doctor_command.add_flag("--check", tries, "Try moves on each GPU");

    try {
        refuse_empty(app, words);
        std::ranges::reverse(words);  // as CLI11 wants them
        app.parse(words);
        if (run_command.parsed()) {
            run_options.command = program_of(run_command, after);
            if (const std::string problem = refuse(run_options); !problem.empty()) throw UsageError(problem);
        } else if (plan_command.parsed()) {
            if (after.size() > 1) plan_options.command.assign(after.begin() + 1, after.end());
            if (const std::string problem = refuse(plan_options); !problem.empty()) throw UsageError(problem);
        } else if (!after.empty()) {
            throw UsageError("no program is run here");
        }
        if (const std::string problem = traces.refuse(); !problem.empty()) throw UsageError(problem);
    } catch (const CLI::Success& help) {
        if (app.get_subcommands().empty() && !app.remaining().empty()) return no_command(app.remaining());
        return app.exit(help);
    } catch (const CLI::RequiredError& problem) {
        if (!app.get_subcommands().empty()) {
            to_stderr("lms: {} (lms {} --help)\n", problem.what(), app.get_subcommands().front()->get_name());
            return kUsage;
        }
        return no_command(app.remaining());
    } catch (const std::runtime_error& problem) {
        const auto given = app.get_subcommands();
        to_stderr("lms: {} (lms {}--help)\n", problem.what(),
                  given.empty() ? "" : given.front()->get_name() + " ");
        return kUsage;
    }
    if (run_command.parsed()) return run(run_options);
    if (demo_command.parsed()) return demo(demo_options);
    if (check_command.parsed()) return self_check(bus_id);
    int status = 0;
    if (const auto done = traces.run()) {
        status = *done;
    } else if (plan_command.parsed()) {
        status = plan(plan_options);
    } else if (doctor_command.parsed()) {
        status = doctor({simulated, as_json, tries});
    } else if (set_command.parsed()) {
        status = set(changed, changes);
    } else if (top_command.parsed()) {
        status = top(watched, as_json);
    } else {
        show_settings(as_json);
    }
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    to_stderr("lms: cannot write: {}\n", std::strerror(errno));
    return kCannotSetUp;
}

}  // namespace
}  // namespace lms::tool

int main(int count, char** words) {
    try {
        return lms::tool::main({words + (count > 0), words + count});
    } catch (const std::system_error& problem) {
        // As fmt::print has it of what does not fit stdout's buffer.
        lms::tool::to_stderr("lms: cannot write: {}\n", problem.code().message());
        return lms::tool::kCannotSetUp;
    } catch (const std::exception& problem) {
        lms::tool::to_stderr("lms: {}\n", problem.what());
        return lms::tool::kCannotSetUp;
    }
}
