// How a test program ends, and how it counts its cases.
#include <filesystem>

#include "tests/support/doctest.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace {

pp::test::Outcome outcome_of(const char* probes) {
  const pp::test::TemporaryFolder folder;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return pp::test::run_program(self, {"--no-skip", std::string("--test-case=") + probes}, folder.path());
}

int exit_code_of(const char* probes) { return outcome_of(probes).code; }

}  // namespace

TEST_SUITE("support/exit_code") {
  TEST_CASE("a case that skips ends with 77, one that passes with 0") {
    CHECK(exit_code_of("probe skips") == 77);
    CHECK(exit_code_of("probe passes") == 0);
  }

  TEST_CASE("a case that skips and fails has failed") { CHECK(exit_code_of("probe skips and fails") == 1); }

  TEST_CASE("a filter that no case matches has failed") { CHECK(exit_code_of("probe of nothing") == 1); }

  TEST_CASE("cases are counted by outcome, and one that skips does not hide another that fails") {
    CHECK(exit_code_of("probe passes,probe skips") == 0);
    CHECK(outcome_of("probe passes,probe skips").out.ends_with("cases: 1 passed, 0 failed, 1 skipped\n"));
    CHECK(exit_code_of("probe*") == 1);
    CHECK(outcome_of("probe*").out.ends_with("cases: 1 passed, 1 failed, 1 skipped\n"));
  }

  TEST_CASE("probe passes" * doctest::skip()) { CHECK(1 + 1 == 2); }
  TEST_CASE("probe skips" * doctest::skip()) { pp::test::skip("as asked"); }
  TEST_CASE("probe skips and fails" * doctest::skip()) {
    pp::test::skip("as asked");
    CHECK(1 + 1 == 3);
  }
}
