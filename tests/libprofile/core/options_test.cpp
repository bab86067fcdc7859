// Options by their rows: names, texts of numbers, ranges, and what documents say.
#include "libprofile/core/options.h"

#include "tests/support/doctest.h"

namespace pp::options_test {

struct Inner {
  int count = 4;
};
struct Options {
  double rate = 0.5;
  std::optional<double> norm = {};
  std::string schedule = "constant";
  bool shuffle = true;
  Seconds timeout{60};
  std::optional<DType> dtype = {};
  Inner inner = {};
  std::vector<std::string> words = {};
};

void take_words(Options& options, const std::string& text) { options.words = {text, text}; }
std::optional<OptionValue> tell_words(const Options& options) {
  if (options.words.empty()) return std::nullopt;
  return options.words.front();
}
bool falls(const Options& options) { return options.schedule == "step"; }

using enum Recorded;
constexpr auto kRows = options(
    option<&Options::rate>(
        "-r,--learning-rate,--lr", "",
        {.group = "A", .least = 0, .recorded = compared, .recorded_always = true, .recorded_if = where<falls>}),
    option<&Options::norm>("--clip-norm", "", {.least = 0, .above = true, .recorded = compared}),
    option<&Options::schedule>("--schedule", "", {.recorded = told}),
    option<&Options::shuffle>("!--no-shuffle", "", {.group = "B", .recorded = told, .recorded_always = true}),
    option<&Options::timeout>("--timeout", "", {.least = 0, .above = true}),
    option<&Options::dtype>("--dtype", ""),
    option<&Options::inner, &Inner::count>("--count", "", {.least = 1, .most = 8}),
    parsed<take_words, tell_words>("--words", "", {.recorded = told, .recorded_as = "said_twice"}));

Options read(std::size_t row, const std::string& text) {
  Options options;
  kRows[row].type->read(kRows[row], text, kRows[row].field(&options));
  return options;
}

std::string refused(const Options& options) {
  try {
    check_ranges(kRows, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST_SUITE("libprofile/core/options") {
  TEST_CASE("a row has a name, a key, a group, a word for its value and a default") {
    CHECK(name_of(kRows[0]) == "--learning-rate");
    CHECK(key_of(kRows[0]) == "learning_rate");
    CHECK(key_of(kRows[3]) == "shuffle");
    CHECK(key_of(kRows[7]) == "said_twice");
    CHECK(kRows[2].group == "A");
    CHECK(kRows[7].group == "B");
    const Options usual;
    CHECK(value_word(kRows[6]) == "INT");
    CHECK(value_word(kRows[3]).empty());
    CHECK(standard_of(kRows[0], &usual) == "0.5");
    CHECK(standard_of(kRows[1], &usual).empty());
    CHECK(standard_of(kRows[6], &usual) == "4");
  }

  TEST_CASE("texts are read into their fields") {
    CHECK(read(0, "0.25").rate == 0.25);
    CHECK(read(1, "3").norm == 3);
    CHECK(read(4, "2min").timeout == Seconds(120));
    CHECK(read(5, "bf16").dtype == DType::bfloat16);
    CHECK(read(6, "7").inner.count == 7);
    CHECK(read(7, "so").words == std::vector<std::string>{"so", "so"});
  }

  TEST_CASE("texts that are no number of the range are named") {
    CHECK(problem_of(kRows[0], "1e-3").empty());
    CHECK(problem_of(kRows[0], "-1") == "\"-1\" is not a number of at least 0");
    CHECK(problem_of(kRows[0], "inf") == "\"inf\" is not a number of at least 0");
    CHECK(problem_of(kRows[1], "0") == "\"0\" is not a number above 0");
    CHECK(problem_of(kRows[6], "9") == "\"9\" is not a whole number from 1 to 8");
    CHECK(problem_of(kRows[6], "1.5") == "\"1.5\" is not a whole number from 1 to 8");
  }

  TEST_CASE("values out of range are refused where they are given") {
    CHECK(refused({}) == "accepted");
    CHECK(refused({.rate = -1}) == "learning_rate = -1: must be 0 or more");
    CHECK(refused({.norm = 0}) == "clip_norm = 0: must be above 0");
    CHECK(refused({.timeout = Seconds(0)}) == "--timeout 0 s: must be above 0");
    CHECK(refused({.inner = {0}}) == "count = 0: must be 1 to 8");
  }

  TEST_CASE("documents say what is given, what is always said, and what holds") {
    using Settings = std::map<std::string, OptionValue>;
    Settings usual, other;
    add_settings(kRows, Options{}, usual);
    CHECK(usual == Settings{{"shuffle", true}});
    add_settings(kRows, Options{.norm = 2, .schedule = "step", .words = {"so"}}, other);
    CHECK(other == Settings{{"shuffle", true},
                            {"learning_rate", 0.5},
                            {"clip_norm", 2.0},
                            {"schedule", std::string("step")},
                            {"said_twice", std::string("so")}});
    CHECK(first_given(kRows, Options{}) == nullptr);
    CHECK(first_given(kRows, Options{.schedule = "step"}) == &kRows[2]);
  }
}

}  // namespace pp::options_test
