#include <cmath>
#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace json_write_test {

using namespace pp;

TEST_SUITE("libprofile/core/json_write") {
  TEST_CASE("what fits in a line stands on one, the rest one member a line") {
    Json json{{"format", "pp.test"}, {"empty", Json::array()}, {"sizes", {1, 2, 4}}};
    json["points"] = Json::array(
        {{{"name", std::string(60, 'x')}, {"value", 1}}, {{"name", std::string(60, 'y')}, {"value", 2}}});
    const std::string x(60, 'x'), y(60, 'y');
    CHECK(dump_json(json) ==
          "{\n"
          "  \"format\": \"pp.test\",\n"
          "  \"empty\": [],\n"
          "  \"sizes\": [1, 2, 4],\n"
          "  \"points\": [\n"
          "    { \"name\": \"" +
              x +
              "\", \"value\": 1 },\n"
              "    { \"name\": \"" +
              y +
              "\", \"value\": 2 }\n"
              "  ]\n"
              "}\n");
  }

  TEST_CASE("a line of exactly 120 columns stays whole, one more breaks it") {
    // `  "a": ["` and `"]` are 11 characters, so 109 more fill the line.
    CHECK(dump_json({{"a", {std::string(109, 'x')}}}) ==
          "{\n  \"a\": [\"" + std::string(109, 'x') + "\"]\n}\n");
    CHECK(dump_json({{"a", {std::string(110, 'x')}}}) ==
          "{\n  \"a\": [\n    \"" + std::string(110, 'x') + "\"\n  ]\n}\n");
  }

  TEST_CASE("numbers are shortest round-trip") {
    CHECK(dump_json_compact(Json{0.1, 1e-5, 2.5e10, 3, -0.0, 1.0 / 3.0}) ==
          "[0.1,1e-05,25000000000.0,3,-0.0,0.3333333333333333]");
  }

  TEST_CASE("what is written is read back equal") {
    const Json json{
        {"a", {{"b", {1.0 / 3.0, 1e300, 5e-324}}}}, {"text", "\"\\\n\u00e9"}, {"none", nullptr}, {"yes", true}};
    CHECK((parse_json(dump_json(json)) == json));
    CHECK((parse_json(dump_json_compact(json)) == json));
  }

  TEST_CASE("NaN and infinity are our own bug") {
    CHECK(test::error_text([] {
            return dump_json({{"a", {1.0, std::nan("")}}});
          }) == "[internal] /a/1: NaN or infinity cannot be written to a document");
    CHECK(test::error_text([] {
            return dump_json_compact(Json{{"b", INFINITY}});
          }) == "[internal] /b: NaN or infinity cannot be written to a document");
  }

  TEST_CASE("text that is not UTF-8 is replaced, not a failure") {
    CHECK(dump_json_compact("a\xff") == "\"a\ufffd\"");
  }
}

}  // namespace json_write_test
