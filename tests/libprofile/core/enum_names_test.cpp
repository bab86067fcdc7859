#include "libprofile/core/enum_names.h"

#include "libprofile/core/model/model_graph.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace enum_names_test {

using namespace pp;

TEST_SUITE("libprofile/core/enum_names") {
  TEST_CASE("names and values are one table") {
    CHECK(name_of(DType::bfloat16) == "bfloat16");
    CHECK((find_enum<DType>("int64") == DType::int64));
    CHECK(!find_enum<DType>("Int64").has_value());
  }

  TEST_CASE("an unknown name lists the allowed ones") {
    CHECK(test::error_text([] { return parse_enum<DType>("half", "--dtype", ErrorKind::usage); }) ==
          "[usage] --dtype: unknown name \"half\"; use one of float32, float64, bfloat16, int64, uint8, bool");
    CHECK(test::error_text([] { return parse_enum<DType>("bfloat", "--dtype", ErrorKind::usage); })
              .starts_with(
                  "[usage] --dtype: unknown name \"bfloat\"; did you mean bfloat16? Use one of float32, "));
  }
}

}  // namespace enum_names_test
