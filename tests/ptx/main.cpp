// The test program of the translator and the executor. When all its cases have run, so must have all
// instructions of the table.
#include <doctest/doctest.h>

#include "tests/ptx/coverage.h"

namespace {

bool g_all_ran = false;

struct Listener : doctest::IReporter {
    explicit Listener(const doctest::ContextOptions&) {}
    void test_run_end(const doctest::TestRunStats& stats) override {
        g_all_ran = stats.numTestCases > 0 && stats.numTestCasesPassingFilters == stats.numTestCases;
    }
    void report_query(const doctest::QueryData&) override {}
    void test_run_start() override {}
    void test_case_start(const doctest::TestCaseData&) override {}
    void test_case_reenter(const doctest::TestCaseData&) override {}
    void test_case_end(const doctest::CurrentTestCaseStats&) override {}
    void test_case_exception(const doctest::TestCaseException&) override {}
    void subcase_start(const doctest::SubcaseSignature&) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData&) override {}
    void log_message(const doctest::MessageData&) override {}
    void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("coverage", 1, Listener);

}  // namespace

int main(int argc, char** argv) {
    doctest::Context context(argc, argv);
    const int failed = context.run();
    if (context.shouldExit() || !g_all_ran) return failed;
    return failed || simcuda::testing::report_never_run() > 0;
}
