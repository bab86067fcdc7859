#include "libprofile/measure/model_parts.h"

#include "libprofile/model/families/families.h"
#include "tests/support/torch_test.h"

namespace pp::profile {
namespace {

using Layers = std::vector<int>;

/// Linear 2 x 4, relu, linear 4 x 2.
ResolvedModel three_layers() { return resolve(model::build_family("mlp:inputs=2,width=4,layers=2,classes=2")); }

}  // namespace

TEST_SUITE("libprofile/measure/model_parts") {
  TEST_CASE("every layer is in one part, in order, and the loss in the last") {
    const ResolvedModel model = resolve(model::build_family("lenet5"));
    for (int count = 2; count <= model.layer_count(); ++count) {
      CAPTURE(count);
      const std::vector<ModelPart> parts = model_parts(model, count);
      REQUIRE(static_cast<int>(parts.size()) == count);
      Layers all;
      for (const ModelPart& part : parts) {
        CHECK_FALSE(part.layers.empty());
        CHECK(part.with_loss == (&part == &parts.back()));
        all.insert(all.end(), part.layers.begin(), part.layers.end());
      }
      CHECK(all == whole_model(model).layers);
    }
  }

  TEST_CASE("parts end where their share of the work is reached") {
    // By their FLOPs 20, 4 and 18 of 42: half of them are reached in the relu.
    const std::vector<ModelPart> parts = model_parts(three_layers(), 2);
    REQUIRE(parts.size() == 2);
    CHECK(parts[0].layers == Layers{0, 1});
    CHECK(parts[1].layers == Layers{2});
  }

  TEST_CASE("one device, or fewer layers than devices: no parts") {
    CHECK(model_parts(three_layers(), 1).empty());
    CHECK(model_parts(three_layers(), 4).empty());
  }

  TEST_CASE("visits of the parts are one of the model: its layers behind each other in every phase and pass") {
    const PassTimes one{{{1, 2}, {3, 4}, {5, 6}, {7, 8}}}, other{{{10}, {20}, {30}, {40}}};
    VisitTimes front, back;
    front.layers = {one, one};
    back.layers = {other, other};
    front.first = one;
    back.first = other;
    const VisitTimes all = joined({front, back});
    REQUIRE(all.layers.size() == 2);
    CHECK(all.layers[1][0] == std::vector<double>{1, 2, 10});
    CHECK((*all.first)[3] == std::vector<double>{7, 8, 40});
    CHECK(pass_seconds(all)[0] == 136);
  }
}

}  // namespace pp::profile
