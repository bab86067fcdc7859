// libprofile/core/README.md describes the documents; what it claims is read from it and checked.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "libprofile/core/ops/op_table.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace readme_test {

using namespace pp;

namespace {

std::string readme() { return read_file(pp::test::repository("libprofile/core/README.md")); }

/// The JSON example under the heading `## name`.
std::string example(const std::string& name) {
  const std::string text = readme();
  const std::size_t section = text.find("\n## " + name + "\n");
  REQUIRE(section != std::string::npos);
  const std::size_t begin = text.find("```json\n", section) + 8;
  return text.substr(begin, text.find("```", begin) - begin);
}

}  // namespace

TEST_SUITE("libprofile/core/readme") {
  TEST_CASE("the command that it names prints a row of five cells for every operation and every loss") {
    REQUIRE(readme().find("pp-profile models --ops --markdown") != std::string::npos);
    const std::string tables = operations_markdown();
    for (const auto& rows : {op_table(), loss_table()}) {
      for (const OpRow& row : rows) {
        CAPTURE(row.name);
        const std::size_t begin = tables.find("\n| `" + std::string(row.name) + "` |");
        REQUIRE(begin != std::string::npos);
        const std::string line = tables.substr(begin + 1, tables.find('\n', begin + 1) - begin - 1);
        CHECK(std::ranges::count(line, '|') == 6);
      }
    }
  }

  TEST_CASE("the model example is a model, the cluster example a cluster") {
    CHECK(resolve(parse_model(example("pp.model"))).layer_count() == 4);
    CHECK(parse_cluster(example("pp.cluster")).devices.size() == 2);
  }
}

}  // namespace readme_test
