// Runs doctest's cases and ends with a line `cases: 12 passed, 0 failed, 1 skipped`. Exit codes: 0 some case
// passed and none failed, 1 a case failed or none matched the filters, 77 all cases that ran skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/support/skip.h"

namespace {

constexpr int kSkipped = 77;  ///< SKIP_RETURN_CODE of scripts/cmake/discover_tests.py
bool skips = false;           ///< the case that runs

// Counts the cases that ran, by outcome; a case that skips and fails has failed. Says nothing.
struct Counter : doctest::IReporter {
  static inline bool listed_only = true;
  static inline int passed = 0;
  static inline int failed = 0;
  static inline int skipped = 0;

  explicit Counter(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override { listed_only = false; }
  void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
  void test_case_start(const doctest::TestCaseData& /*data*/) override { skips = false; }
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    ++(!stats.testCaseSuccess ? failed : skips ? skipped : passed);
  }
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*signature*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*data*/) override {}
  void log_message(const doctest::MessageData& /*data*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}
};
REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

void pp::test::skip(std::string_view why) {
  std::printf("SKIPPED: %.*s\n", static_cast<int>(why.size()), why.data());
  skips = true;
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int failed = context.run();
  if (Counter::listed_only) return failed;
  if (Counter::passed + Counter::failed + Counter::skipped == 0) {
    std::fputs("no case matches the filters\n", stderr);
    return 1;
  }
  std::printf("cases: %d passed, %d failed, %d skipped\n", Counter::passed, Counter::failed, Counter::skipped);
  if (failed != 0) return failed;
  return Counter::passed == 0 ? kSkipped : 0;
}
