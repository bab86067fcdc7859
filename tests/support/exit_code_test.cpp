// A process that says SKIPPED has still failed when an assertion did.
#include <filesystem>

#include "tests/support/doctest.h"
#include "tests/support/process.h"
#include "tests/support/skip.h"

namespace {

int exit_code_of(const char* probe) {
  const pp::test::TemporaryFolder folder;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  return pp::test::run_program(self, {"--no-skip", std::string("--test-case=") + probe}, folder.path()).code;
}

}  // namespace

TEST_SUITE("support/exit_code") {
  TEST_CASE("a case that skips ends with 77, one that passes with 0") {
    CHECK(exit_code_of("probe skips") == 77);
    CHECK(exit_code_of("probe passes") == 0);
  }

  TEST_CASE("a case that skips and fails has failed") { CHECK(exit_code_of("probe skips and fails") == 1); }

  TEST_CASE("a filter that no case matches has failed") { CHECK(exit_code_of("probe of nothing") == 1); }

  TEST_CASE("probe passes" * doctest::skip()) { CHECK(1 + 1 == 2); }
  TEST_CASE("probe skips" * doctest::skip()) { pp::test::skip("as asked"); }
  TEST_CASE("probe skips and fails" * doctest::skip()) {
    pp::test::skip("as asked");
    CHECK(1 + 1 == 3);
  }
}
