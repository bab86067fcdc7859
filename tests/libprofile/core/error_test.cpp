#include "libprofile/core/error.h"

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace error_test {

using namespace pp;

TEST_SUITE("libprofile/core/error") {
  TEST_CASE("contexts stand before the message, outermost first") {
    const auto inner = [] {
      return with_context("/stages/3", []() -> int { throw Error(ErrorKind::data, "is empty"); });
    };
    CHECK(test::error_text([&] { return with_context("plan.json", inner); }) ==
          "[data] plan.json: /stages/3: is empty");
  }

  TEST_CASE("a body that succeeds gives its value") {
    CHECK(with_context("never seen", [] { return 7; }) == 7);
  }
}

}  // namespace error_test
