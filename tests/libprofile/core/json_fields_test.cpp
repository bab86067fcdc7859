// A list of fields of every kind: what is written is read, and the schema takes what the reader takes.
#include "libprofile/core/json_fields.h"

#include <limits>

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"
#include "tests/support/schema.h"

namespace json_fields_test {

enum class Colour { red, green };

}  // namespace json_fields_test

namespace pp {
template <>
struct EnumNames<json_fields_test::Colour> {
  static constexpr std::array table{std::pair{json_fields_test::Colour::red, "red"sv},
                                    std::pair{json_fields_test::Colour::green, "green"sv}};
};
}  // namespace pp

namespace json_fields_test {

using namespace pp;

namespace {

struct Part {
  Seconds time{};
  std::optional<double> share = {};
  bool operator==(const Part&) const = default;
};
constexpr Object kPart{
    "part",
    key<&Part::time>("time_s"),
    optional<&Part::share>("share", kShare),
};

struct Limits {
  double low = 0, high = 0;
  bool operator==(const Limits&) const = default;
};

struct Whole {
  std::string name;
  bool flag = false;
  int count = 0;
  Bytes bytes = {};
  double factor = 1;
  Colour colour = Colour::red;
  DeviceId device{};
  std::vector<BytesPerSecond> rates = {};
  std::vector<std::vector<int>> table = {};
  Part part = {};
  std::vector<Part> parts = {};
  std::optional<Part> spare = {};
  std::optional<Limits> limits = {};
  std::map<std::string, std::string> context = {};
  int usual = 7;
  int written = 8;
  bool operator==(const Whole&) const = default;
};
constexpr Object kLimits{
    "limits",
    optional<&Whole::limits, &Limits::low>("low"),
    optional<&Whole::limits, &Limits::high>("high"),
};
bool is_green(const Whole& whole) { return whole.colour == Colour::green; }
void check_whole(Whole& whole, ObjectReader& reader) {
  look_at_each(reader, "parts", [&](ObjectReader& part) { part.number("time_s", {.max = whole.factor}); });
}

constexpr Object kWhole{
    "whole",
    defaulted<&Whole::context>("context"),
    key<&Whole::name>("name"),
    key<&Whole::flag>("flag"),
    key<&Whole::count>("count", {.min = 1, .max = 100}),
    key<&Whole::bytes>("bytes"),
    key<&Whole::factor>("factor", kPositive),
    key<&Whole::colour>("colour"),
    key<&Whole::device>("device").given<is_green>(),
    key<&Whole::rates>("rates", {.min = 1e-3}),
    key<&Whole::table>("table"),
    key<&Whole::part>("part", kPart),
    key<&Whole::part, &Part::time>("part_s"),
    key<&Whole::parts>("parts", kPart),
    group("limits", kLimits),
    optional<&Whole::spare>("spare", kPart),
    optional<&Whole::usual>("usual"),
    defaulted<&Whole::written>("written"),
    check<check_whole>(),
};

Whole read(const Json& json) {
  Whole whole;
  ObjectReader reader(json, "");
  read_keys(keys_of(kWhole), reader, &whole);
  reader.finish();
  return whole;
}

Whole full() {
  return {.name = "a",
          .flag = true,
          .count = 3,
          .bytes = Bytes(5),
          .factor = 2,
          .colour = Colour::green,
          .device = DeviceId{4},
          .rates = {BytesPerSecond(1.5)},
          .table = {{1, 2}, {}},
          .part = {Seconds(0.5), 0.25},
          .parts = {{Seconds(1)}, {Seconds(2)}},
          .spare = Part{Seconds(9)},
          .limits = Limits{1, 2},
          .context = {{"by", "hand"}},
          .usual = 6,
          .written = 9};
}

}  // namespace

TEST_SUITE("libprofile/core/json_fields") {
  TEST_CASE("keys are written in the order of the list, defaults left out, and read back") {
    CHECK(dump_json_compact(to_json(kWhole, Whole{.name = "a"})) ==
          R"({"context":{},"name":"a","flag":false,"count":0,"bytes":0,"factor":1.0,"colour":"red","rates":[],)"
          R"("table":[],"part":{"time_s":0.0},"part_s":0.0,"parts":[],"limits":{},"written":8})");
    CHECK(
        dump_json_compact(to_json(kWhole, full())) ==
        R"({"context":{"by":"hand"},"name":"a","flag":true,"count":3,"bytes":5,"factor":2.0,"colour":"green",)"
        R"("device":4,"rates":[1.5],"table":[[1,2],[]],"part":{"time_s":0.5,"share":0.25},"part_s":0.5,)"
        R"("parts":[{"time_s":1.0},{"time_s":2.0}],"limits":{"low":1.0,"high":2.0},"spare":{"time_s":9.0},)"
        R"("usual":6,"written":9})");
    CHECK(read(to_json(kWhole, full())) == full());
  }

  TEST_CASE("the schema takes what the reader takes, and refuses what it refuses in one place") {
    Json schema = object_schema(keys_of(kWhole));
    add_definitions(keys_of(kWhole), schema["definitions"]);
    const test::Disagreement found = test::disagreement(test::schema_error_of(schema), to_json(kWhole, full()),
                                                        [](const Json& changed) { read(changed); });
    CHECK(found.too_strict == "");
    // Whether there is a device depends on the colour.
    CHECK(found.too_loose == "/device without; ");
  }

  TEST_CASE("refusals name place, value and limit") {
    const auto refusal = [](const char* pointer, const Json& value) {
      Json json = to_json(kWhole, full());
      json[Json::json_pointer(pointer)] = value;
      return test::error_text([&] { return read(json), 0; });
    };
    CHECK(refusal("/count", 101) == "[data] /count: must be an integer from 1 to 100, not 101");
    CHECK(refusal("/device", std::int64_t{1} << 31) ==
          "[data] /device: must be an integer from 0 to 2147483647, not 2147483648");
    CHECK(refusal("/rates/0", 0) == "[data] /rates/0: must be a number from 0.001 upwards, not 0");
    CHECK(refusal("/table/0/1", "b") ==
          "[data] /table/0/1: must be an integer from 0 to 2147483647, not \"b\"");
    CHECK(refusal("/spare/share", 2) == "[data] /spare/share: must be a number from 0.0 to 1.0, not 2");
    CHECK(refusal("/parts/1/time_s", 3) == "[data] /parts/1/time_s: must be a number from 0.0 to 2.0, not 3");
    CHECK(refusal("/parts/1/pace", 3) == "[data] /parts/1/pace: unknown key; use one of time_s, share");
    CHECK(refusal("/colour", "blue") == "[data] /colour: unknown name \"blue\"; use one of red, green");
    CHECK(refusal("/context/by", 1) == "[data] /context/by: must be a string, the context is free text");
    Json without = to_json(kWhole, full());
    without["parts"][0].erase("time_s");
    CHECK(test::error_text([&] { return read(without), 0; }) ==
          "[data] /parts/0/time_s: missing; add this key, a number from 0.0 upwards");
  }
}

}  // namespace json_fields_test
