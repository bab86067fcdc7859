// libprofile/core/README.md describes the documents; what it claims is read from it and checked.
#include <nlohmann/json.hpp>
#include <sstream>

#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "libprofile/core/ops/op_table.h"
#include "tests/support/doctest.h"

using namespace pp;

namespace {

std::string readme() { return read_file(PP_TEST_DATA "/../../libprofile/core/README.md"); }

/// The JSON example under the heading `## name`.
std::string example(const std::string& name) {
  const std::string text = readme();
  const std::size_t section = text.find("\n## " + name + "\n");
  REQUIRE(section != std::string::npos);
  const std::size_t begin = text.find("```json\n", section) + 8;
  return text.substr(begin, text.find("```", begin) - begin);
}

/// `kernel_size, stride=kernel_size, padding=0`
std::string attribute_list(const OpRow& row) {
  std::ostringstream list;
  for (const AttributeSpec& spec : row.attributes) {
    list << (&spec == &row.attributes.front() ? "" : ", ") << spec.name;
    if (spec.default_value)
      list << "=" << std::visit([](const auto& value) { return Json(value).dump(); }, *spec.default_value);
    if (!spec.default_from.empty()) list << "=" << spec.default_from;
  }
  return list.str();
}

}  // namespace

TEST_SUITE("libprofile/core/readme") {
  TEST_CASE("the table of operations is the op table") {
    const std::string text = readme();
    for (const OpRow& row : op_table()) {
      const std::string attributes = attribute_list(row);
      const std::string line =
          "\n| `" + std::string(row.name) + "` | " + attributes + (attributes.empty() ? "|" : " |");
      CAPTURE(line);
      CHECK(text.find(line) != std::string::npos);
    }
    for (const OpRow& row : loss_table())
      CHECK(text.find("\n| `" + std::string(row.name) + "` | ") != std::string::npos);
  }

  TEST_CASE("the model example is a model, the cluster example a cluster") {
    CHECK(resolve(parse_model(example("pp.model"))).layer_count() == 4);
    CHECK(parse_cluster(example("pp.cluster")).devices.size() == 2);
  }
}
