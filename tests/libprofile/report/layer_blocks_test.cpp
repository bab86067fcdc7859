#include "libprofile/report/layer_rows.h"

#include "tests/libprofile/report/profiles.h"

#include "tests/support/doctest.h"

namespace pp::profile::layer_blocks_test {
namespace {

/// The blocks' names in the model's order, of layers with these names.
std::vector<std::string> names(const std::vector<std::string>& layers, std::size_t most,
                               LayerOrder order = LayerOrder::model) {
  std::vector<test::LayerSpec> specs;
  for (std::size_t l = 0; l < layers.size(); ++l) specs.push_back({layers[l], 1.0 + static_cast<double>(l), 0});
  const Profile profile = test::make_profile(specs, {1});
  const std::vector<LayerRow> rows = layer_rows(profile, 0, order);
  std::vector<std::string> result;
  for (const LayerBlock& block : layer_blocks(rows, most, order)) result.push_back(block.name);
  return result;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE("libprofile/report/layer_blocks") {
  TEST_CASE("few layers stay alone") { CHECK(names({"a.x", "a.y", "b"}, 3) == Names{"a.x", "a.y", "b"}); }

  TEST_CASE("neighbours are gathered by as many parts of their names as leave few enough blocks") {
    const Names layers{"stem", "a.0.x", "a.0.y", "a.1.x", "a.1.y", "b.0.x", "b.0.y", "b.1.x"};
    CHECK(names(layers, 5) == Names{"stem", "a.0 (2 layers)", "a.1 (2 layers)", "b.0 (2 layers)", "b.1.x"});
    CHECK(names(layers, 3) == Names{"stem", "a (4 layers)", "b (3 layers)"});
  }

  TEST_CASE("names without parts are gathered into runs of equal length") {
    // 5 layers in at most 2 blocks: runs of 3.
    CHECK(names({"a", "b", "c", "d", "e"}, 2) == Names{"a .. c (3 layers)", "d .. e (2 layers)"});
  }

  TEST_CASE("names that would put most layers into one block do not count") {
    CHECK(names({"f.0", "f.1", "f.2", "f.3"}, 2) == Names{"f.0 .. f.1 (2 layers)", "f.2 .. f.3 (2 layers)"});
  }

  TEST_CASE("sorted rows stay alone as far as there is room, the rest is one block") {
    CHECK(names({"a", "b", "c", "d"}, 3, LayerOrder::time) == Names{"d", "c", "all others (2 layers)"});
  }
}

}  // namespace pp::profile::layer_blocks_test
