// libprofile/core/README.md describes the documents; what it claims is read from it and checked.
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
  TEST_CASE("its tables of operations and losses are those of `pp-profile models --ops --markdown`") {
    const std::string tables = operations_markdown();
    const std::size_t begin = readme().find(tables.substr(0, tables.find('\n')));
    REQUIRE(begin != std::string::npos);
    CHECK(readme().substr(begin, tables.size()) == tables);
  }

  TEST_CASE("the model example is a model, the cluster example a cluster") {
    CHECK(resolve(parse_model(example("pp.model"))).layer_count() == 4);
    CHECK(parse_cluster(example("pp.cluster")).devices.size() == 2);
  }
}

}  // namespace readme_test
