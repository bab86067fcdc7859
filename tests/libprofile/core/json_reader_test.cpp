#include "libprofile/core/json_reader.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/model/model_graph.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace json_reader_test {

using namespace pp;

namespace {

/// Reads `text` as the document pp.test, version 3, with `read`; the message of the refusal.
std::string refused(std::string_view text, const std::function<void(ObjectReader&)>& read) {
  const Json json = parse_json(text);
  return test::error_text([&] { return read_document(json, "pp.test", 3, read), 0; });
}

/// The refusal of `"x": value` when read by `read`.
std::string refused_value(const std::string& value, const std::function<void(ObjectReader&)>& read) {
  return refused(R"({"format": "pp.test", "version": 3, "x": )" + value + "}", read);
}

void read_count(ObjectReader& reader) { reader.integer("x", {.min = 1, .max = 100}); }

}  // namespace

TEST_SUITE("libprofile/core/json_reader") {
  TEST_CASE("another format or version is refused with both names") {
    const auto nothing = [](ObjectReader&) {};
    CHECK(refused("[]", nothing) == "[data] must be an object, not an array");
    CHECK(refused("{}", nothing) == "[data] /format: missing; add this key, a string");
    CHECK(refused(R"({"format": "pp.plan", "version": 3})", nothing) ==
          "[data] /format: this is a \"pp.plan\" document; a \"pp.test\" is needed here");
    CHECK(refused(R"({"format": "pp.test", "version": 4})", nothing) ==
          "[data] /version: version 4 of pp.test is not known; this program reads version 3");
  }

  TEST_CASE("a count is an integer in its range") {
    CHECK(refused_value("100", read_count) == "no error");
    CHECK(refused_value("1.9", read_count) == "[data] /x: must be an integer from 1 to 100, not 1.9");
    CHECK(refused_value("2.0", read_count) == "[data] /x: must be an integer from 1 to 100, not 2.0");
    CHECK(refused_value("-1", read_count) == "[data] /x: must be an integer from 1 to 100, not -1");
    CHECK(refused_value("101", read_count) == "[data] /x: must be an integer from 1 to 100, not 101");
    CHECK(refused_value("\"7\"", read_count) == "[data] /x: must be an integer from 1 to 100, not \"7\"");
    CHECK(refused_value("true", read_count) == "[data] /x: must be an integer from 1 to 100, not true");
    CHECK(refused_value("9223372036854775808", [](ObjectReader& r) { r.integer("x"); }) ==
          "[data] /x: must be an integer from 0 to 1000000000000000, not 9223372036854775808");
  }

  TEST_CASE("a number may be whole, and keeps to its range") {
    CHECK(refused_value("3", [](ObjectReader& r) { CHECK(r.number("x") == 3.0); }) == "no error");
    CHECK(refused_value("-0.5", [](ObjectReader& r) { r.number("x"); }) ==
          "[data] /x: must be a number from 0.0 upwards, not -0.5");
    CHECK(refused_value("1.5", [](ObjectReader& r) { r.number("x", {.max = 1}); }) ==
          "[data] /x: must be a number from 0.0 to 1.0, not 1.5");
  }

  TEST_CASE("the other types are strict as well") {
    CHECK(refused_value("1", [](ObjectReader& r) { r.text("x"); }) == "[data] /x: must be a string, not 1");
    CHECK(refused_value("0", [](ObjectReader& r) { r.boolean("x"); }) ==
          "[data] /x: must be true or false, not 0");
    CHECK(refused_value("{}", [](ObjectReader& r) { r.texts("x"); }) ==
          "[data] /x: must be an array, not an object");
    CHECK(refused_value("[\"a\", 1]", [](ObjectReader& r) { r.texts("x"); }) ==
          "[data] /x/1: must be a string, not 1");
    CHECK(refused_value("[1, null]", [](ObjectReader& r) { r.integers("x"); }) ==
          "[data] /x/1: must be an integer from 0 upwards, not null");
    CHECK(refused_value("[0.5, -1]", [](ObjectReader& r) { r.numbers("x"); }) ==
          "[data] /x/1: must be a number from 0.0 upwards, not -1");
    CHECK(refused_value("[[]]", [](ObjectReader& r) { r.objects("x", [](ObjectReader&) {}); }) ==
          "[data] /x/0: must be an object, not an array");
    CHECK(refused_value("\"half\"", [](ObjectReader& r) { r.enumerator<DType>("x"); }) ==
          "[data] /x: unknown name \"half\"; use one of float32, float64, bfloat16, int64, uint8, bool");
  }

  TEST_CASE("a long value is shown by its beginning") {
    CHECK(refused_value("\"" + std::string(100, 'a') + "\"", read_count) ==
          "[data] /x: must be an integer from 1 to 100, not \"" + std::string(59, 'a') + "...");
  }

  TEST_CASE("a missing key is named with what belongs there") {
    const auto read = [](ObjectReader& r) {
      r.objects("x", [](ObjectReader& member) { member.integer("n", {.min = 1, .max = 9}); });
    };
    CHECK(refused_value("[{\"n\": 1}, {}]", read) ==
          "[data] /x/1/n: missing; add this key, an integer from 1 to 9");
  }

  TEST_CASE("an unknown key is refused with the known ones, optional ones too") {
    const auto read = [](ObjectReader& r) {
      r.object("x", [](ObjectReader& member) {
        member.text("name");
        if (member.has("dtype")) member.text("dtype");
      });
    };
    CHECK(refused_value(R"({"name": "a", "dtyp": "b"})", read) ==
          "[data] /x/dtyp: unknown key; use one of name, dtype");
    CHECK(refused_value("{\"name\": \"a\"}", read) == "no error");
    CHECK(refused(R"({"format": "pp.test", "version": 3, "y": 1})", [](ObjectReader&) {}) ==
          "[data] /y: unknown key; use one of format, version");
  }

  TEST_CASE("an embedded document's pointers start where it stands") {
    const Json json = parse_json(R"({"format": "pp.test", "version": 3, "x": -1})");
    CHECK(test::error_text([&] { return read_document(json, "pp.test", 3, read_count, "/model"), 0; }) ==
          "[data] /model/x: must be an integer from 1 to 100, not -1");
  }

  TEST_CASE("pointers escape what JSON pointers reserve") {
    CHECK(append_pointer("/a", "b/c~d") == "/a/b~1c~0d");
  }
}

}  // namespace json_reader_test
