// The importer reads the table of operations from a file, which must be this table.
#include "libprofile/core/ops/op_table.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace op_json_test {

using namespace pp;

TEST_SUITE("libprofile/core/ops/op_json") {
  TEST_CASE("scripts/import_torch/operations.json is what `pp-profile models --ops --json` prints") {
    CHECK(read_file(pp::test::repository("scripts/import_torch/operations.json")) ==
          dump_json(operations_json()));
  }

  TEST_CASE("a row has the type, the range and the default of each attribute") {
    for (const Json& row : operations_json()) {
      if (row["name"] != "conv2d") continue;
      CHECK(row["inputs"] == Json({1, 1}));
      CHECK(row["attributes"][0] == Json{{"name", "out_channels"},
                                         {"summary", row["attributes"][0]["summary"]},
                                         {"type", "integer"},
                                         {"required", true},
                                         {"least", 1.0},
                                         {"most", 1048576.0}});
      CHECK(row["attributes"].back()["default_from"] == "padding");
    }
  }
}

}  // namespace op_json_test
