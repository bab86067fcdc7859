#include "libprofile/core/ops/op_table.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace attributes_test {

using namespace pp;

namespace {

Attributes complete(std::string_view op, const Attributes& given) {
  return complete_attributes(*find_op(op), given, "/a");
}
std::string refused(std::string_view op, const Attributes& given) {
  return test::error_text([&] { return complete(op, given); });
}
Attribute whole(std::int64_t value) { return value; }

}  // namespace

TEST_SUITE("libprofile/core/ops/op_table") {
  TEST_CASE("the table is sorted by name, and a name stands once") {
    CHECK(std::ranges::adjacent_find(op_table(), std::greater_equal<>(), &OpRow::name) == op_table().end());
    REQUIRE(find_op("conv2d") != nullptr);
    CHECK(find_op("conv2d")->name == "conv2d");
    CHECK(find_op("conv3d") == nullptr);
    CHECK(find_loss("mse") != nullptr);
    CHECK(find_loss("linear") == nullptr);
  }

  TEST_CASE("every row is documented and its defaults are in range") {
    for (const std::vector<OpRow>* table : {&op_table(), &loss_table()}) {
      for (const OpRow& row : *table) {
        CAPTURE(row.name);
        CHECK(!row.summary.empty());
        CHECK(row.min_inputs <= row.max_inputs);
        Attributes defaults;
        for (const AttributeSpec& spec : row.attributes) {
          CHECK(!spec.summary.empty());
          if (spec.default_value) defaults.emplace(spec.name, *spec.default_value);
          const auto least = static_cast<std::int64_t>(spec.min);
          const bool list = std::holds_alternative<std::vector<std::int64_t>>(spec.type);
          if (spec.required() && list) defaults.emplace(spec.name, std::vector<std::int64_t>{least});
          if (spec.required() && !list) defaults.emplace(spec.name, whole(least));
        }
        CHECK(complete_attributes(row, defaults, "").size() == row.attributes.size());
      }
    }
  }

  TEST_CASE("what is left out gets its default, a pool's stride its kernel size") {
    CHECK((complete("linear", {{"out_features", whole(3)}}) ==
           Attributes{{"out_features", whole(3)}, {"bias", true}, {"std", 0.0}}));
    CHECK((complete("max_pool2d", {{"kernel_size", whole(3)}}) ==
           Attributes{
               {"kernel_size", whole(3)}, {"stride", whole(3)}, {"padding", whole(0)}, {"ceil_mode", false}}));
    CHECK((complete("max_pool2d", {{"kernel_size", whole(3)}, {"stride", whole(2)}}) ==
           Attributes{
               {"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(0)}, {"ceil_mode", false}}));
  }

  TEST_CASE("a whole number is a number, but a number is no integer") {
    CHECK((complete("dropout", {{"p", whole(0)}}) == Attributes{{"p", 0.0}}));
    CHECK(refused("linear", {{"out_features", 1.9}}) ==
          "[data] /a/out_features: must be an integer from 1 to 1048576, not 1.9");
  }

  TEST_CASE("a wrong type or range is refused with the limits") {
    CHECK(refused("conv2d", {{"out_channels", whole(4)}, {"kernel_size", whole(0)}}) ==
          "[data] /a/kernel_size: must be an integer from 1 to 1048576, not 0");
    CHECK(refused("linear", {{"out_features", whole(4)}, {"bias", whole(1)}}) ==
          "[data] /a/bias: must be true or false, not 1");
    CHECK(refused("dropout", {{"p", 1.0}}) == "[data] /a/p: must be a number from 0.0 to 0.99, not 1.0");
    CHECK(refused("dropout", {{"p", std::string("0.5")}}) ==
          "[data] /a/p: must be a number from 0.0 to 0.99, not \"0.5\"");
  }

  TEST_CASE("a missing attribute is named with its meaning") {
    CHECK(refused("linear", {}) ==
          "[data] /a/out_features: missing; linear needs it: features of the output, an integer from 1 to "
          "1048576");
  }

  TEST_CASE("an unknown attribute is refused with the known ones") {
    CHECK(refused("max_pool2d", {{"kernel", whole(2)}}) ==
          "[data] /a/kernel: unknown attribute of max_pool2d; use one of kernel_size, stride, padding, "
          "ceil_mode");
    CHECK(refused("relu", {{"inplace", true}}) ==
          "[data] /a/inplace: unknown attribute of relu; remove it, the op has none");
  }

  TEST_CASE("the importer is told type, range and default of each attribute") {
    const Json rows = operations_json();
    const auto row = std::ranges::find_if(rows, [](const Json& one) { return one["name"] == "conv2d"; });
    REQUIRE(row != rows.end());
    CHECK((*row)["inputs"] == Json({1, 1}));
    const Json& attributes = (*row)["attributes"];
    CHECK(attributes.front() == Json{{"name", "out_channels"},
                                     {"summary", attributes.front()["summary"]},
                                     {"type", "integer"},
                                     {"required", true},
                                     {"least", 1.0},
                                     {"most", 1048576.0}});
    CHECK(attributes.back()["default_from"] == "padding");
  }

  TEST_CASE("reading an attribute as another type is our own bug") {
    const Attributes attributes = complete("linear", {{"out_features", whole(3)}});
    CHECK(integer(attributes, "out_features") == 3);
    CHECK(boolean(attributes, "bias"));
    CHECK(test::error_text([&] { return number(attributes, "out_features"); }) ==
          "[internal] no attribute \"out_features\" of the type asked for");
  }
}

}  // namespace attributes_test
