// Rows of equal layers: which stages get one more decides how long a step takes, though the largest load and
// the sum of all are the same.
#include "libplan/search/candidates/even_partitions.h"
#include "tests/libplan/search/equal_rows.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/equal_layers");

namespace pp::plan::equal_layers_test {
namespace {

using test::EqualRow;

/// `3|3|2`
std::string lengths(const Partition& partition) {
  std::string text;
  for (const StageRange& stage : partition)
    text += (text.empty() ? "" : "|") + std::to_string(stage.end - stage.begin);
  return text;
}

std::vector<std::string> even(const std::vector<double>& seconds, int stages,
                              std::vector<char> cut_allowed = {}) {
  std::vector<double> prefix{0};
  for (const double one : seconds) prefix.push_back(prefix.back() + one);
  const SearchSpace space{.layers = static_cast<int>(seconds.size()), .cut_allowed = std::move(cut_allowed)};
  std::vector<std::string> texts;
  for (const Partition& partition : even_partitions(space, stages, prefix)) texts.push_back(lengths(partition));
  return texts;
}

void check(const EqualRow& row) {
  CAPTURE(row.schedule);
  CAPTURE(row.layers);
  CAPTURE(row.workers);
  CAPTURE(row.chunks);
  CAPTURE(row.micro_batches);
  CHECK(test::plan_of(row).predicted.step.count() <= 1.005 * test::plain_step(row));
}

}  // namespace

TEST_CASE("even partitions put the remainder in front, at the back and in between, each once") {
  CHECK(even({1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 4) == std::vector<std::string>{"3|3|2|2", "2|2|3|3", "2|3|2|3"});
  CHECK(even({1, 1, 1, 1}, 2) == std::vector<std::string>{"2|2"});
  CHECK(even({1, 1}, 3).empty());
  // Largest time 4, and then no stage below 3: not 1 | 3 | 1 2.
  CHECK(even({1, 3, 1, 2}, 2) == std::vector<std::string>{"2|2"});
  // Cuts behind the second and the fourth layer alone.
  CHECK(even({1, 1, 1, 1, 1}, 3, {1, 0, 1, 0, 1, 1}) == std::vector<std::string>{"2|2|1"});
  CHECK(even({1, 1, 1, 1, 1}, 4, {1, 0, 1, 0, 1, 1}).empty());
}

TEST_CASE("1f1b with the longer stages in front: forwards there run while the pipeline fills") {
  // 40 layers of 10 and 20 ms on 16 stages, M = 16. Eight stages of three, then eight of two: the way of one
  // micro-batch takes 1.2 s, and the first stage has 15 more backwards of 60 ms: 2.1 s. The last stage, behind
  // 38 layers, has 15 more micro-batches of 60 ms: 38 * 30 ms + 16 * 60 ms = 2.1 s.
  const Plan plan = test::plan_of({.layers = 40, .workers = 16, .micro_batches = 16});
  CHECK(plan.predicted.step.count() == doctest::Approx(2.1));
  CHECK(plan.certificate.lower_bound.count() == doctest::Approx(2.1));
}

TEST_CASE("no row is slower than with the remainder in front, at the back or spread") {
  std::vector<EqualRow> rows{{22, 4, 2, 8, "interleaved"}, {42, 8, 3, 8, "interleaved"},
                             {61, 8, 2, 8, "interleaved"}, {23, 5, 2, 10, "zb-v"},
                             {56, 15, 1, 32, "1f1b"},      {22, 15, 1, 15, "1f1b"}};
  std::mt19937 random(43);
  while (rows.size() < 14) rows.push_back(test::random_row(random));
  for (const EqualRow& row : rows) check(row);
}

// Minutes: --no-skip --test-case="200 random rows*"
TEST_CASE("200 random rows of equal layers" * doctest::skip()) {
  std::mt19937 random(2026);
  for (int i = 0; i < 200; ++i) check(test::random_row(random));
}

}  // namespace pp::plan::equal_layers_test

TEST_SUITE_END();
