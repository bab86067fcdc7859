// Rates of the schedules by hand.
#include "librun/options/learning_rate.h"

#include "libprofile/core/error.h"
#include "tests/librun/folder.h"
#include "tests/support/doctest.h"

namespace learning_rate_test {

using namespace pp;
using namespace pp::run;

namespace {

std::vector<double> rates(const RateSchedule& schedule, double base, Step total) {
  std::vector<double> all;
  for (Step t = 0; t < total; ++t) all.push_back(rate_at(schedule, base, total, t));
  return all;
}

void check_near(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-12));
}

}  // namespace

TEST_SUITE("librun/options/learning_rate") {
  TEST_CASE("constant, with and without warm-up") {
    CHECK(rates({}, 0.1, 3) == std::vector<double>{0.1, 0.1, 0.1});
    check_near(rates({.warm_up = 4}, 0.1, 6), {0.025, 0.05, 0.075, 0.1, 0.1, 0.1});
  }

  TEST_CASE("step: a factor after every period behind the warm-up") {
    check_near(rates({.kind = RateKind::step, .period = 2, .factor = 0.5}, 1, 6), {1, 1, 0.5, 0.5, 0.25, 0.25});
    check_near(rates({.kind = RateKind::step, .warm_up = 1, .period = 2, .factor = 0.1}, 2, 5),
               {2, 2, 2, 0.2, 0.2});
  }

  TEST_CASE("cosine: from the base to the least over the steps behind the warm-up") {
    // (1 + cos(pi t / 4)) / 2 = 1, 0.853553..., 0.5, 0.146446...
    check_near(rates({.kind = RateKind::cosine}, 1, 4), {1, 0.8535533905932737, 0.5, 0.14644660940672624});
    check_near(rates({.kind = RateKind::cosine, .warm_up = 2, .least = 0.5}, 1, 6),
               {0.5, 1, 1, 0.9267766952966369, 0.75, 0.5732233047033631});
  }

  TEST_CASE("a file of steps: each rate holds until the next") {
    const TestFolder folder;
    write_file(folder.path() / "rates.txt", "# step rate\n0 0.1\n\n3 0.01  # later\n5 0\n");
    const RateSchedule schedule{.kind = RateKind::table, .table = read_rates(folder.path() / "rates.txt")};
    CHECK(rates(schedule, 7, 7) == std::vector<double>{0.1, 0.1, 0.1, 0.01, 0.01, 0, 0});
  }

  TEST_CASE("a file that is wrong is refused with its line") {
    const TestFolder folder;
    const std::filesystem::path path = folder.path() / "r";
    const auto refusal = [&](const char* text) {
      write_file(path, text);
      try {
        read_rates(path);
        return std::string("read");
      } catch (const Error& error) {
        return std::string(error.what()).substr(path.string().size());
      }
    };
    CHECK(refusal("") == ": has no rates; give lines such as `0 0.1`");
    CHECK(refusal("0 0.1\n1\n") == ":2: must be a step and a rate, as in `100 0.01`");
    CHECK(refusal("0 0.1 5\n") == ":1: must be a step and a rate, as in `100 0.01`");
    CHECK(refusal("1 0.1\n") == ":1: the first step is 1; begin with step 0");
    CHECK(refusal("0 0.1\n5 1\n5 2\n") == ":3: step 5 does not follow 5");
    CHECK(refusal("0 nan\n") == ":1: rate \"nan\" is not a number of at least 0");
    CHECK(refusal("0 -1\n") == ":1: rate \"-1\" is not a number of at least 0");
    CHECK(refusal("x 1\n") == ":1: step \"x\" is not a whole number");
  }
}

}  // namespace learning_rate_test
