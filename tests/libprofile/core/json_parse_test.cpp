#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace json_parse_test {

using namespace pp;

namespace {

std::string refused(std::string_view text) {
  return test::error_text([&] { return parse_json(text); });
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

}  // namespace

TEST_SUITE("libprofile/core/json_parse") {
  TEST_CASE("values of every kind, keys in the order of the text") {
    const Json json = parse_json(R"({"z": [1, -2, 2.5, true, null], "a": {"text": "\u00e9\n"}})");
    CHECK(json.dump() == "{\"z\":[1,-2,2.5,true,null],\"a\":{\"text\":\"\u00e9\\n\"}}");
    CHECK(parse_json("9223372036854775807").get<std::int64_t>() == std::numeric_limits<std::int64_t>::max());
  }

  TEST_CASE("syntax errors name line, column and what is wrong") {
    CHECK(refused("") == "[data] line 1, column 1: not valid JSON: the file is empty");
    CHECK(refused("{\n  \"a\": 1,\n  }") ==
          "[data] line 3, column 3: not valid JSON: unexpected '}'; expected string literal");
    CHECK(refused("{\"a\": 1") == "[data] line 1, column 8: not valid JSON: the file ends too early");
    CHECK(refused("[1, 2] 3") ==
          "[data] line 1, column 8: not valid JSON: unexpected number literal; expected end of input");
    CHECK(refused("{'a': 1}").starts_with("[data] line 1, column 2: not valid JSON: invalid literal"));
  }

  TEST_CASE("NaN, infinity and numbers beyond their type are refused") {
    CHECK(refused("[NaN]") ==
          "[data] line 1, column 2: not valid JSON: NaN and infinity are not allowed; write a finite number");
    CHECK(refused("[Infinity]") ==
          "[data] line 1, column 2: not valid JSON: NaN and infinity are not allowed; write a finite number");
    CHECK(refused("[-Infinity]") ==
          "[data] line 1, column 3: not valid JSON: NaN and infinity are not allowed; write a finite number");
    CHECK(refused("[1e400]") == "[data] line 1, column 6: not valid JSON: the number is too large");
    CHECK(refused("{\"a\": [0, 18446744073709551616]}") ==
          "[data] /a/1: the integer 18446744073709551616 does not fit in 64 bits");
  }

  TEST_CASE("a key that appears twice is refused where it stands") {
    CHECK(refused(R"({"a": 1, "b": 2, "a": 1})") == "[data] /a: the key appears twice; remove one of them");
    CHECK(refused(R"({"layers": [{}, {"x/y": 1, "x/y": 2}]})") ==
          "[data] /layers/1/x~1y: the key appears twice; remove one of them");
    CHECK(refused(R"([{"a": 1}, {"a": 1}])") == "no error");
  }

  TEST_CASE("64 levels are read, 65 are refused") {
    CHECK(refused(nested(64)) == "no error");
    CHECK(refused(nested(65)) == "[data] nested deeper than 64 levels; no document of ours is");
    CHECK(refused(std::string(1'000'000, '[')) ==
          "[data] nested deeper than 64 levels; no document of ours is");
  }

  TEST_CASE("an object with very many keys takes no quadratic time") {
    // 200,000 keys: 2e10 comparisons (minutes) if each key were searched among the ones before it.
    std::string text = "{";
    for (int i = 0; i < 200'000; ++i)
      text.append(i == 0 ? "\"" : ",\"").append(std::to_string(i)).append("\":0");
    CHECK(parse_json(text + "}").size() == 200'000);
  }

  TEST_CASE("more than 256 MiB are refused before parsing") {
    CHECK(refused(std::string((std::size_t{256} << 20) + 1, ' ')) ==
          "[data] the text has 268435457 bytes; the limit is 256 MiB");
  }

  TEST_CASE("text that is not UTF-8 is refused") {
    CHECK(refused("[\"\xff\"]")
              .starts_with("[data] line 1, column 3: not valid JSON: invalid string: ill-formed UTF-8 byte"));
  }
}

}  // namespace json_parse_test
