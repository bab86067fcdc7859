#include "libplan/cost/links.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "libprofile/core/index.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

doctest::Approx about(double value) { return doctest::Approx(value).epsilon(1e-7); }

/// Each device ran one stage, and took so many times as long as promised.
std::vector<double> alone(const std::vector<double>& ratios) {
  TwoWayTable table{.rows = static_cast<int>(ratios.size()), .devices = {}, .cells = {}};
  for (int d = 0; d < table.rows; ++d) {
    table.devices.push_back(d);
    table.cells.push_back({d, d, ratios[at(d)]});
  }
  return two_way_factors(table).columns;
}

/// So many devices ran the only stage.
TwoWayFactors together(const std::vector<double>& ratios) {
  TwoWayTable table{.rows = 1, .devices = {}, .cells = {}};
  for (int d = 0; d < std::ssize(ratios); ++d) {
    table.devices.push_back(d);
    table.cells.push_back({0, d, ratios[at(d)]});
  }
  return two_way_factors(table);
}

/// The same between `least` and `most` times as often in every decade.
double drawn(std::mt19937_64& random, double least, double most) {
  const double share = std::uniform_real_distribution<double>(0, 1)(random);
  return least * std::pow(most / least, share);
}

}  // namespace

TEST_SUITE("libplan/cost/two_way") {
  TEST_CASE("of devices that run stages of their own, one that is off by more than promises are is slow") {
    CHECK(alone({1, 2})[0] == about(1));
    CHECK(alone({1, 2})[1] == about(2));
    CHECK(alone({1, 1.3}) == std::vector<double>{1, 1});
    const std::vector<double> three = alone({1.1, 0.9, 2.2});  // 1.1 is what they have in common
    CHECK(three[0] == about(1));
    CHECK(three[1] == about(1));
    CHECK(three[2] == about(2));
  }

  TEST_CASE("what all devices have in common is nobody's fault, of two the one as promised counts") {
    for (const double device : alone({2, 2, 2})) CHECK(device == about(1));
    for (const double device : alone({2})) CHECK(device == about(1));
    CHECK(alone({0.5, 1})[0] == about(0.5));  // faster than it was planned for
    CHECK(alone({0.5, 1})[1] == about(1));
  }

  TEST_CASE("devices of the same layers are compared with each other, exactly") {
    const TwoWayFactors four = together({1.5, 1.5, 1.8, 1.5});
    CHECK(four.rows[0] == about(1.5));
    CHECK(four.columns[0] == about(1));
    CHECK(four.columns[2] == about(1.2));
    const TwoWayFactors two = together({2, 1});
    CHECK(two.rows[0] == about(1));
    CHECK(two.columns[0] == about(2));
  }

  TEST_CASE("one kind of operation that is off is the layers' doing, as a slow device slows all kinds") {
    // Forwards 4 and backwards 1 times as long as promised, then 4 and 3.
    const auto factors = [](double forward, double backward) {
      return two_way_factors(
          {.rows = 4, .devices = {0, 1}, .cells = {{0, 0, forward}, {1, 0, backward}, {2, 1, 1}, {3, 1, 1}}});
    };
    CHECK(factors(4, 1).columns[0] == about(1));
    CHECK(factors(4, 1).rows[0] == about(4));
    CHECK(factors(4, 3).columns[0] == about(3));
    CHECK(factors(4, 3).rows[0] == about(4.0 / 3));
  }

  TEST_CASE("a layer that moved tells two devices apart that never ran the same at one time") {
    // Layers 0 1 | 2 on devices 0 and 1, then 0 | 1 2. Layer 2 takes 1.3 times as long, and device 1 does in
    // the second run alone. Within one run either might be a device's or a layer's doing.
    const TwoWayFactors factors =
        two_way_factors({.rows = 3,
                         .devices = {0, 1, 0, 1},
                         .cells = {{0, 0, 1}, {1, 0, 1}, {2, 1, 1.3}, {0, 2, 1}, {1, 3, 1.3}, {2, 3, 1.69}}});
    CHECK(factors.rows[2] == about(1.3));
    CHECK(factors.columns[1] == about(1));
    CHECK(factors.columns[3] == about(1.3));
  }

  TEST_CASE("a row or a column without cells has the factor 1") {
    const TwoWayFactors factors = two_way_factors({.rows = 2, .devices = {0, 1}, .cells = {{0, 0, 1}}});
    CHECK(factors.rows == std::vector<double>{1, 1});
    CHECK(factors.columns == std::vector<double>{1, 1});
    CHECK(two_way_factors({}).rows.empty());
  }

  TEST_CASE("of tables of many layers and devices, with cells that are far off, the factors come back") {
    // Every row has most of its cells right and so has every column, so that medians do not see the others.
    std::mt19937_64 random(1);
    for (int draw = 0; draw < 2000; ++draw) {
      CAPTURE(draw);
      const int rows = std::uniform_int_distribution(7, 20)(random);
      const int columns = std::uniform_int_distribution(7, 12)(random);
      TwoWayTable table{.rows = rows, .devices = {}, .cells = {}};
      std::vector<double> row(at(rows)), column(at(columns), 1);
      for (double& one : row) one = drawn(random, 0.7, 1.4);
      for (int c = 0; c < columns; ++c) table.devices.push_back(c);
      const int slow = std::uniform_int_distribution(0, columns - 1)(random);
      column[at(slow)] = drawn(random, 1.5, 4);
      for (int r = 0; r < rows; ++r) {
        for (int c = 0; c < columns; ++c) {
          const bool off = (r + 3 * c + draw) % 7 == 0;  // at most one in seven of a line, rounded up
          const double noise = drawn(random, 0.99, 1.01);
          table.cells.push_back({r, c, row[at(r)] * column[at(c)] * noise * (off ? drawn(random, 2, 9) : 1)});
        }
      }
      const TwoWayFactors found = two_way_factors(table);
      for (int c = 0; c < columns; ++c)
        CHECK(found.columns[at(c)] == doctest::Approx(column[at(c)]).epsilon(0.04));
      for (int r = 0; r < rows; ++r) CHECK(found.rows[at(r)] == doctest::Approx(row[at(r)]).epsilon(0.04));
    }
  }

  TEST_CASE("one slow device among devices with stages of their own is found in every draw, and no other is") {
    std::mt19937_64 random(2);
    for (int draw = 0; draw < 5000; ++draw) {
      CAPTURE(draw);
      const int devices = std::uniform_int_distribution(2, 16)(random);
      std::vector<double> ratios(at(devices));
      for (double& one : ratios) one = drawn(random, 0.9, 1.1);  // two differ by 1.22 at most
      const auto slow = at(std::uniform_int_distribution(0, devices - 1)(random));
      const double factor = drawn(random, 1.75, 5);  // with 0.9/1.1 of it still above 1.4
      ratios[slow] *= factor;
      const std::vector<double> found = alone(ratios);
      for (std::size_t d = 0; d < found.size(); ++d) {
        if (d != slow) CHECK(found[d] == about(1));
      }
      CHECK(found[slow] > kUsualError);
      CHECK(found[slow] / factor == doctest::Approx(1).epsilon(0.25));
    }
  }
}

}  // namespace pp::plan
