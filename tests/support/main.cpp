// Exit codes: 0 passed, 1 failed or no case matched the filters, 77 a case skipped and none failed.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/support/skip.h"

namespace {

constexpr int kSkipped = 77;  ///< SKIP_RETURN_CODE of tests/CMakeLists.txt
bool skipped = false;

// Counts the cases that ran; says nothing.
struct Counter : doctest::IReporter {
  static inline bool listed_only = true;
  static inline int cases = 0;

  explicit Counter(const doctest::ContextOptions& /*options*/) {}
  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_start() override { listed_only = false; }
  void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
  void test_case_start(const doctest::TestCaseData& /*data*/) override { ++cases; }
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
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
  skipped = true;
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int failed = context.run();
  if (failed != 0 || Counter::listed_only) return failed;
  if (Counter::cases == 0) {
    std::fputs("no case matches the filters\n", stderr);
    return 1;
  }
  return skipped ? kSkipped : 0;
}
