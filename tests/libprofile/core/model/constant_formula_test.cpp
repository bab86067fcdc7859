// Constants by formula: their values, and what of their keys is refused.
#include "libprofile/core/model/constant_formula.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/core/model/model_graph.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace pp::constant_formula_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ConstantFormula read(const char* text, const TensorType& type) {
  const Json json = parse_json(text);
  ObjectReader reader(json, "/formula");
  ConstantFormula formula = read_constant_formula(reader, type);
  reader.finish();
  return formula;
}

std::vector<double> values(const char* text, const TensorType& type) {
  return values_of(AtenConstant{"c", type, read(text, type)});
}

std::string refusal(const char* text, const TensorType& type) {
  return test::error_text([&] { return read(text, type); });
}

const TensorType kTable{{2, 4}, DType::float32};

TEST_SUITE("libprofile/core/model/constant_formula") {
  TEST_CASE("linear: offset and steps of the indices") {
    // 5 + 10 i - j
    CHECK(values(R"({"kind": "linear", "offset": 5, "steps": [10, -1]})", {{2, 3}, DType::int64}) ==
          std::vector<double>{5, 4, 3, 15, 14, 13});
    CHECK(values(R"({"kind": "linear", "steps": [0.5]})", {{3}, DType::float32}) ==
          std::vector<double>{0, 0.5, 1});
    CHECK(values(R"({"kind": "linear", "offset": 7, "steps": []})", {{}, DType::float32}) ==
          std::vector<double>{7});
  }

  TEST_CASE("band: a causal mask, and one with a window of two") {
    // Distance j - i; rows i, columns j.
    CHECK(values(R"({"kind": "band", "steps": [-1, 1], "high": 0})", {{3, 3}, DType::boolean}) ==
          std::vector<double>{1, 0, 0, 1, 1, 0, 1, 1, 1});
    CHECK(values(R"({"kind": "band", "steps": [-1, 1], "low": -1, "high": 0, "inside": 0,
                     "outside": {"number": "-inf"}})",
                 {{3, 3}, DType::float32}) ==
          std::vector<double>{0, -kInfinity, -kInfinity, 0, 0, -kInfinity, -kInfinity, 0, 0});
  }

  TEST_CASE("waves: columns in halves, in pairs, and single") {
    const double one = std::cos(1.0), half = std::cos(0.5), sine = std::sin(1.0), sine_half = std::sin(0.5);
    // Position 0: cosines 1, sines 0; position 1: angles 1 and 0.5.
    const auto table = [](const char* function, const char* columns, const char* frequencies) {
      const std::string text = std::string(R"({"kind": "waves", "position_dim": 0, "function": ")") + function +
                               R"(", "columns": ")" + columns + R"(", "frequencies": )" + frequencies + "}";
      return values(text.c_str(), {{2, std::string(columns) == "single" ? 2 : 4}, DType::float32});
    };
    CHECK(table("cos", "halves", "[1, 0.5]") == std::vector<double>{1, 1, 1, 1, one, half, one, half});
    CHECK(table("sin_cos", "pairs", "[1, 0.5]") == std::vector<double>{0, 1, 0, 1, sine, one, sine_half, half});
    CHECK(table("cos_sin", "halves", "[1, 0.5]") ==
          std::vector<double>{1, 1, 0, 0, one, half, sine, sine_half});
    CHECK(table("sin", "single", "[1, 0.5]") == std::vector<double>{0, 0, sine, sine_half});
  }

  TEST_CASE("the angle of a wave is a product in float32") {
    // 100,000 * 0.1f in float32 is 10000 exactly; in float64 it would be 10000.000149.
    const WaveFormula waves{.columns = WaveColumns::single, .frequencies = {0.1}, .factor = 2};
    CHECK(value_at(waves, 100'000, 0) == 2 * std::cos(10000.0));
  }

  TEST_CASE("dimensions before the positions repeat the table") {
    CHECK(values(R"({"kind": "waves", "position_dim": 1, "function": "cos", "columns": "single",
                     "frequencies": [0], "factor": 3})",
                 {{2, 2, 1}, DType::float32}) == std::vector<double>{3, 3, 3, 3});
  }

  TEST_CASE("what the type or the shape does not hold is refused") {
    CHECK(refusal(R"({"kind": "linear", "steps": [1]})", kTable) ==
          "[data] /formula/steps: has 1 entries, the shape [2, 4] needs 2");
    CHECK(refusal(R"({"kind": "linear", "steps": [1, 1]})", {{2, 4}, DType::boolean}) ==
          "[data] /formula/steps: gives values that the type bool does not hold");
    CHECK(refusal(R"({"kind": "linear", "steps": [0.5, 1]})", {{2, 4}, DType::int64}) ==
          "[data] /formula/steps: gives values that the type int64 does not hold");
    CHECK(refusal(R"({"kind": "band", "steps": [1, 1], "inside": 2})", {{2, 4}, DType::boolean}) ==
          "[data] /formula/inside: must be an integer that the type bool holds");
    CHECK(
        refusal(R"({"kind": "waves", "position_dim": 0, "function": "cos", "columns": "halves",
                      "frequencies": [1]})",
                kTable) ==
        "[data] /formula/frequencies: has 1 entries, for 2 columns; the shape [2, 4] has 4 behind dimension 0");
    CHECK(refusal(R"({"kind": "waves", "position_dim": 0, "function": "cos_sin", "columns": "single",
                      "frequencies": [1, 1, 1, 1]})",
                  kTable) == "[data] /formula/columns: two functions by turns stand in halves or pairs");
    CHECK(refusal(R"({"kind": "spiral"})", kTable) ==
          "[data] /formula/kind: unknown name \"spiral\"; use one of linear, band, waves");
    CHECK(refusal(R"({"kind": "band", "steps": [-1, 1]})", {{1 << 17, 1 << 17}, DType::boolean}) ==
          "[data] /formula/kind: the shape [131072, 131072] has more than 2^32 elements; use smaller sizes");
  }

  TEST_CASE("a model with a formula is of version 2, one without stays of version 1, and both are read") {
    Json json = parse_json(R"({
      "format": "pp.model", "version": 2, "name": "masked", "inputs": [{"name": "x", "shape": [2, 2]}],
      "layers": [{"name": "mask", "op": "aten", "inputs": ["x"],
        "call": {"target": "aten::add.Tensor", "arguments": {"other": {"constant": "m"}, "self": {"input": 0}},
                 "constants": [{"name": "m", "dtype": "float32", "shape": [2, 2],
                                "formula": {"kind": "band", "offset": 0.0, "steps": [-1.0, 1.0], "high": 0.0,
                                            "inside": 0.0, "outside": {"number": "-inf"}}}],
                 "outputs": [{"dtype": "float32", "shape": [2, 2]}], "flops": 0.0}}],
      "outputs": ["mask"]})");
    json["targets"] = Json::array();
    const ModelGraph graph = model_from_json(json);
    const Json written = to_json(graph);
    CHECK(written["version"] == 2);
    CHECK(written["layers"] == json["layers"]);
    CHECK(model_from_json(written) == graph);
    json["layers"][0]["call"]["constants"][0].erase("formula");
    json["layers"][0]["call"]["constants"][0]["values"] = {0, 0, 0, 0};
    CHECK(to_json(model_from_json(json))["version"] == 1);
    json["version"] = 3;
    CHECK(test::error_text([&] { return model_from_json(json); }) ==
          "[data] /version: version 3 of pp.model is not known; this program reads versions 1 to 2");
  }

  TEST_CASE("a model that nobody compared says so, and has the hash of one that is") {
    ModelGraph graph = parse_model(R"({"format": "pp.model", "version": 2, "name": "m", "verified": false,
      "inputs": [{"name": "x", "shape": [2]}], "layers": [{"name": "r", "op": "relu", "inputs": ["x"]}],
      "outputs": ["r"]})");
    CHECK_FALSE(graph.verified);
    const Json json = to_json(graph);
    CHECK(json["version"] == 2);
    CHECK(json["verified"] == false);
    const std::string hash = model_hash(graph);
    graph.verified = true;
    CHECK(model_hash(graph) == hash);
    CHECK_FALSE(to_json(graph).contains("verified"));
  }
}

}  // namespace
}  // namespace pp::constant_formula_test
