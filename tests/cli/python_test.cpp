// The Python package, as a program uses it: tests/cli/api.py does and checks it.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/process.h"

namespace {

using support::Result;

Result script(const std::vector<std::string>& arguments, std::map<std::string, std::string> environment) {
    environment.try_emplace("PYTHONPATH", "tools/package/python");
    environment["PYTHONDONTWRITEBYTECODE"] = "1";
    environment["PATH"] = support::build_dir() + ":" + std::getenv("PATH");
    std::vector<std::string> command{"python3", "tests/cli/api.py"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return support::run(command, environment);
}

void check_well(const Result& result) {
    INFO(result.err);
    CHECK(result.out == "");
    CHECK(result.status == 0);
}

}  // namespace

TEST_CASE("python: under the shim memory moves as it is told, and traces are read") {
    const std::string stats = support::scratch_file("stats.json");
    const std::string trace = support::scratch_file("api.lmstrace");
    const Result result = script({"with"}, {{"LD_PRELOAD", support::preloaded_shim()},
                                            {"LMS_DRIVER", support::build_dir() + "/sim/libcuda.so.1"},
                                            {"SIMCUDA_MEMORY", "4M"},
                                            {"SIMCUDA_GRANULARITY", "64K"},
                                            {"LMS_THRESHOLD", "16K"},
                                            {"LMS_STATS", stats},
                                            {"LMS_TRACE", trace}});
    INFO(result.out, result.err);
    REQUIRE(result.status == 0);
    // Both tell of the same counters, by the same names.
    const auto told = nlohmann::json::parse(result.out, nullptr, false);
    const auto written = nlohmann::json::parse(support::read_file(stats), nullptr, false);
    REQUIRE(told.is_object());
    CHECK(told == written);

    check_well(script({"trace", trace}, {}));
    const std::string pandas = support::scratch_file("pandas");
    std::filesystem::create_directory(pandas);
    std::ofstream(pandas + "/pandas.py") << "class DataFrame:\n"
                                            "    pass\n\n"
                                            "def read_csv(file, dtype):\n"
                                            "    assert file.readline().startswith('event,gpu,begin_ns')\n"
                                            "    assert dtype['bytes'] == 'Int64'\n"
                                            "    return DataFrame()\n";
    check_well(
        script({"trace", trace}, {{"PYTHONPATH", "tools/package/python:" + pandas}, {"EXPECT_FRAME", "1"}}));
}

TEST_CASE("python: without the shim nothing is done, and what is wrong is told all the same") {
    check_well(script({"without"}, {}));
}
