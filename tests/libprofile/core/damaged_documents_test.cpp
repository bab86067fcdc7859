// Damaged documents: each golden file with bytes removed, replaced, or its end cut off. Reading either
// succeeds, and then writes and reads back the same value, or throws pp::Error (data); it never crashes or
// throws anything else.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"
#include "tests/libprofile/core/golden.h"
#include "tests/support/doctest.h"

namespace damaged_documents_test {

using namespace pp;
using pp::test::golden;

namespace {

/// Every seventh byte is enough to meet each kind of token, and keeps the test at a second under sanitizers.
constexpr std::size_t kStride = 7;

std::vector<std::string> damaged(const std::string& text) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < text.size(); i += kStride) {
    texts.push_back(text.substr(0, i));
    texts.push_back(text.substr(0, i) + text.substr(i + 1));
    for (const char c : {'0', '-', '"', '}', ',', '\xff'}) {
      texts.push_back(text);
      texts.back()[i] = c;
    }
  }
  return texts;
}

/// How many of the damaged texts still were documents.
template <class Parse>
int read_all(const char* name, Parse parse) {
  int accepted = 0;
  for (const std::string& text : damaged(golden(name))) {
    CAPTURE(text);
    try {
      const auto value = parse(text);
      ++accepted;
      CHECK((parse(dump_json(to_json(value))) == value));
    } catch (const Error& error) {
      CHECK((error.kind() == ErrorKind::data));
      CHECK(!error.message().empty());
    }
  }
  return accepted;
}

}  // namespace

TEST_SUITE("libprofile/core/damaged_documents") {
  TEST_CASE("a damaged model is refused or is another model") {
    CHECK(read_all("features.model.json", parse_model) > 0);
    CHECK(read_all("lenet5.model.json", parse_model) > 0);
  }
  TEST_CASE("a damaged profile is refused or is another profile") {
    CHECK(read_all("small.profile.json", parse_profile) > 0);
  }
  TEST_CASE("a damaged cluster is refused or is another cluster") {
    CHECK(read_all("two_nodes.cluster.json", parse_cluster) > 0);
  }
}

}  // namespace damaged_documents_test
