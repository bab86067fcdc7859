#include "libprofile/measure/profiled_devices.h"

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
    const std::vector<double> costs(static_cast<std::size_t>(model.layer_count()), 1.0);
    for (int count = 2; count <= model.layer_count(); ++count) {
      CAPTURE(count);
      const std::vector<ModelPart> parts = model_parts(model, count, costs);
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

  // Of 42: the half lies at 21, in the middle layer's first quarter; of 30 at 15, behind the middle one.
  TEST_CASE("parts end nearest to their share of the cost") {
    const auto first_part = [](const std::vector<double>& costs) {
      return model_parts(three_layers(), 2, costs)[0].layers;
    };
    CHECK(first_part({20, 4, 18}) == Layers{0});
    CHECK(first_part({1, 9, 20}) == Layers{0, 1});
    CHECK(first_part({1, 1, 20}) == Layers{0, 1});
    CHECK(first_part({20, 1, 1}) == Layers{0});
  }

  TEST_CASE("a layer costs its shortest pass, both ways, and the last one the loss as well") {
    VisitTimes times;
    times.layers = {{{{1, 2, 3}, {10, 20, 30}, {}, {}}}, {{{2, 2, 1}, {10, 10, 30}, {}, {}}}};
    CHECK(layer_costs(times, 2) == std::vector<double>{11, 12 + 31});
  }

  TEST_CASE("one device, or fewer layers than devices: no parts") {
    const ResolvedModel model = three_layers();
    CHECK_FALSE(are_parts_measured(model, whole_model(model), 1));
    CHECK_FALSE(are_parts_measured(model, whole_model(model), 4));
    CHECK_FALSE(are_parts_measured(model, {{1}, false}, 2));
    CHECK(are_parts_measured(model, whole_model(model), 2));
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
