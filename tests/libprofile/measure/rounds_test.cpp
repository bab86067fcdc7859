#include "libprofile/measure/rounds.h"

#include <algorithm>
#include <string>

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

/// Runs a visit on a machine where every pass takes `pass` seconds.
void serve(Rounds& rounds, const Visit& visit, double pass) {
  const std::vector<double> seconds(static_cast<std::size_t>(visit.passes), pass);
  rounds.report(visit, seconds, Seconds(pass * visit.all()));
}

/// Its place in the list.
std::ptrdiff_t number(const PassKind& kind) { return std::ranges::find(kPassKinds, kind) - kPassKinds.begin(); }

}  // namespace

TEST_SUITE("libprofile/measure/rounds") {
  TEST_CASE("each size is warmed up first, then sizes and kinds take turns") {
    Rounds rounds({.budget = Seconds(100)}, {Seconds(0), Seconds(0)}, kKindsOfWhole);
    std::string order;
    for (int i = 0; i < 10; ++i) {
      const Visit visit = rounds.next().value();
      order +=
          std::to_string(visit.size) + (visit.passes == 0 ? "w" : std::to_string(number(visit.kind))) + " ";
      serve(rounds, visit, 0.1);
    }
    // w: warm-up; 0 full, 1 split, 2 whole
    CHECK(order == "0w 1w 00 10 01 11 02 12 00 10 ");
  }

  TEST_CASE("with several devices there are seven kinds, each visited by its own speed") {
    Rounds rounds({.budget = Seconds(100)}, {Seconds(0)}, kKindsWithParts);
    serve(rounds, rounds.next().value(), 0.01);
    std::string order;
    for (int i = 0; i < 14; ++i) {
      const Visit visit = rounds.next().value();
      order += std::to_string(number(visit.kind)) + ":" + std::to_string(visit.passes) + " ";
      serve(rounds, visit, visit.kind.condition.cut ? 0.005 : 0.01);  // 30 ms hold 6 and 3
    }
    CHECK(order == "0:3 1:3 2:3 3:3 4:3 5:3 6:3 0:3 1:3 2:3 3:6 4:6 5:3 6:3 ");
  }

  TEST_CASE("a step's first pass comes before others, after an update; before long ones where it is recorded") {
    Rounds rounds({}, {Seconds(0), Seconds(0)}, kKindsOfWhole);
    serve(rounds, rounds.next().value(), 0.01);
    serve(rounds, rounds.next().value(), 0.1);
    const Visit brief = rounds.next().value(), lengthy = rounds.next().value();
    CHECK(brief.after_update);
    CHECK(brief.all() == 1 + 1 + 3);
    CHECK(lengthy.kind == kFull);
    CHECK(lengthy.after_update);
    CHECK(lengthy.all() == 1 + 1);
    std::string after_update;
    for (int i = 0; i < 2 * std::ssize(kKindsOfWhole); ++i) {
      const Visit visit = rounds.next().value();
      serve(rounds, visit, visit.size == 0 ? 0.01 : 0.1);
      if (visit.size == 1) after_update += visit.after_update ? "1" : "0";
    }
    CHECK(after_update == "110");  // full, split, whole
  }

  TEST_CASE("what runs in a warm-up is not a sample") {
    Rounds rounds({.warm_up_passes = 4}, {Seconds(0)}, kKindsOfWhole);
    const Visit visit = rounds.next().value();
    CHECK(visit.dropped == 4);
    CHECK(visit.passes == 0);
    serve(rounds, visit, 0.1);
    CHECK(rounds.samples(0, kFull).empty());
  }

  TEST_CASE("a size warms up until a visit is hardly faster than the one before, four times at most") {
    const auto warm_ups = [](const std::vector<double>& passes) {
      Rounds rounds({}, {Seconds(10)}, kKindsOfWhole);  // the guess from the first passes ever
      int count = 0;
      while (rounds.next().value().passes == 0) serve(rounds, rounds.next().value(), passes[count++]);
      return count;
    };
    CHECK(warm_ups({9.5}) == 1);
    CHECK(warm_ups({8, 6, 5.5}) == 3);
    CHECK(warm_ups({8, 6, 4, 2, 1}) == 4);
  }

  TEST_CASE("short passes come in groups after a dropped one, long passes singly") {
    Rounds rounds({}, {Seconds(0), Seconds(0), Seconds(0)}, kKindsOfWhole);
    const double seconds[] = {0.001, 0.01, 0.1};
    for (const double pass : seconds) serve(rounds, rounds.next().value(), pass);
    const Visit shortest = rounds.next().value(), middle = rounds.next().value(),
                longest = rounds.next().value();
    CHECK(shortest.passes == 16);  // 30 ms hold 30, at most 16
    CHECK(middle.passes == 3);
    CHECK(longest.passes == 1);
    CHECK(shortest.dropped == 1);
    CHECK(middle.dropped == 1);
    CHECK(longest.dropped == 0);
  }

  TEST_CASE("equal times are precise after eight visits of each kind") {
    Rounds rounds({.min_time = Seconds(0)}, {Seconds(0)}, kKindsOfWhole);
    int visits = 0;
    while (const auto visit = rounds.next()) {
      serve(rounds, *visit, 0.001);
      ++visits;
    }
    CHECK(visits == 1 + 8 * 3);  // warm-up, and 16 samples a visit
    CHECK(rounds.samples(0, kWhole).size() == 8 * 16);
    CHECK(rounds.done() == 1.0);
    CHECK(rounds.remaining().count() == 0.0);
  }

  TEST_CASE("slow passes end when each kind has eight samples, though the budget is long spent") {
    Rounds rounds({.budget = Seconds(1)}, {Seconds(0)}, kKindsOfWhole);
    int visits = 0;
    while (const auto visit = rounds.next()) {
      serve(rounds, *visit, 10.0);
      ++visits;
    }
    CHECK(visits == 1 + 3 * 8);
  }

  // Passes of 0.5 ms: a visit of 18 takes 9 ms. The budget ends after 12 visits: two of each kind but the last
  // two. A step's first pass is recorded once in a visit of the first two kinds: three more of each.
  TEST_CASE("a spent budget leaves five first passes of a step, for which only their kinds go on") {
    Rounds rounds({.budget = Seconds(0.1)}, {Seconds(0)}, kKindsWithParts);
    serve(rounds, rounds.next().value(), 0.0005);
    std::string order;
    while (const auto visit = rounds.next()) {
      serve(rounds, *visit, 0.0005);
      order += std::to_string(number(visit->kind));
      if (order.size() == 12) CHECK(rounds.remaining().count() == doctest::Approx(6 * 0.009));
    }
    CHECK(order.substr(0, 12) == "012345601234");
    CHECK(order.size() == 18);
    CHECK(order.find_first_not_of("01", 12) == std::string::npos);
    CHECK(rounds.samples(0, kFull).size() == 5 * 16);
    CHECK(rounds.samples(0, kSplit).size() == 5 * 16);
  }

  TEST_CASE("a size that is out of memory is never visited") {
    Rounds rounds({}, {Seconds(0), std::nullopt}, kKindsOfWhole);
    while (const auto visit = rounds.next()) {
      CHECK(visit->size == 0);
      serve(rounds, *visit, 0.001);
    }
    CHECK_FALSE(Rounds({}, {std::nullopt}, kKindsOfWhole).next().has_value());
  }

  TEST_CASE("a size is expected to take its budget, or its fewest passes if that is more") {
    const StoppingRule rule{.warm_up_passes = 3, .budget = Seconds(1)};
    CHECK(expected_time(rule, Seconds(0.01), kKindsOfWhole).count() == 1.0);
    CHECK(expected_time(rule, Seconds(0.1), kKindsOfWhole).count() ==
          doctest::Approx(4.3));  // 3 + 3 * 8 passes, and 2 * 8 first ones
    const Rounds rounds(rule, {Seconds(0.01), Seconds(0.1), std::nullopt}, kKindsOfWhole);
    CHECK(rounds.remaining().count() == doctest::Approx(5.3));
  }

  TEST_CASE("the remaining time is the budget that is left, or what the missing samples take if that is more") {
    Rounds rounds({.budget = Seconds(1)}, {Seconds(0)}, kKindsOfWhole);
    CHECK(rounds.remaining().count() == 1.0);
    CHECK(rounds.done() == 0.0);
    serve(rounds, rounds.next().value(), 0.02);  // warm-up: 3 passes, 60 ms
    // Eight visits of three kinds, each with a dropped, a first and a recorded pass of 20 ms.
    CHECK(rounds.remaining().count() == doctest::Approx(1.44));
    serve(rounds, rounds.next().value(), 0.2);
    // Missing are 7 visits of one pass of 0.2 s and a first one, and the 16 of the other kinds.
    CHECK(rounds.remaining().count() == doctest::Approx(2.8 + 0.96));
    CHECK(rounds.done() == doctest::Approx(0.66 / (0.66 + 3.76)));
  }

  // Passes of 10 ms come in visits of three, a dropped one and a first one, 50 ms; each kind has a third of
  // them.
  TEST_CASE("a size is done when the medians of its visits agree, after enough visits and time of each kind") {
    const auto visits = [](const StoppingRule& rule, double apart) {
      Rounds rounds(rule, {Seconds(0.01)}, kKindsOfWhole);
      serve(rounds, rounds.next().value(), 0.01);
      int count = 0;
      for (; const std::optional<Visit> visit = rounds.next(); ++count)
        serve(rounds, *visit, count / 3 % 2 == 0 ? 0.01 : 0.01 * (1 + apart));
      return count;
    };
    CHECK(visits({.min_time = Seconds(0.1)}, 0.0) == 24);                       // eight of each kind
    CHECK(visits({.min_time = Seconds(0.495)}, 0.0) == 30);                     // ten of 50 ms
    CHECK(visits({.min_time = Seconds(0.1)}, 0.02) == 24);                      // the interval is 2 % wide
    CHECK(visits({.min_time = Seconds(0.1), .budget = Seconds(3)}, 0.2) > 50);  // the budget's end
  }

  TEST_CASE("the end that is foretold while sampling is the end that comes") {
    // Sizes whose times never settle use their budgets, except the last, whose fewest passes take longer: 3 +
    // 40 of 0.2 s. The first guesses are half of the truth.
    const StoppingRule rule{.precision = 0.001, .budget = Seconds(1)};
    const std::vector<double> passes{0.001, 0.01, 0.2};
    Rounds rounds(rule, {Seconds(0.0005), Seconds(0.005), Seconds(0.1)}, kKindsOfWhole);
    double elapsed = 0, last_remaining = rounds.remaining().count(), done = 0;
    std::vector<double> foretold;
    for (int turn = 0; const std::optional<Visit> visit = rounds.next(); ++turn) {
      const double pass = passes[visit->size] * (turn % 2 == 0 ? 0.8 : 1.2);
      const int count = visit->all();
      std::vector<double> recorded;
      for (int i = 0; i < visit->passes; ++i) recorded.push_back(pass * (i % 2 == 0 ? 0.5 : 1.5));
      rounds.report(*visit, recorded, Seconds(pass * count));
      elapsed += pass * count;
      foretold.push_back(elapsed + rounds.remaining().count());
      CHECK(rounds.remaining().count() <
            last_remaining + 3);  // never jumps by more than a size's guess was off
      last_remaining = rounds.remaining().count();
      done = rounds.done();
    }
    CHECK(last_remaining == 0.0);
    CHECK(done == 1.0);
    for (std::size_t i = foretold.size() / 4; i < foretold.size(); ++i) {
      CAPTURE(i);
      CHECK(foretold[i] == doctest::Approx(elapsed).epsilon(0.15));
    }
  }
}

}  // namespace pp::profile
