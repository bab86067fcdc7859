// What the tools write for a terminal: the line that shows how far they are, narrow tables, long lists.
#include "apps/cli/progress.h"

#include "apps/cli/table.h"
#include "apps/plan/stage_table.h"

#include "tests/support/doctest.h"

using pp::Seconds;
using pp::cli::clock;
using pp::cli::progress_text;

TEST_SUITE("apps/progress") {
  TEST_CASE("the line has a bar of 24 columns where there is room") {
    // 8 + 3 + 24 + 9 + 19 = 63 columns.
    CHECK(progress_text("training", 0.5, "step 1/2, loss 0.25", 63) ==
          "training [████████████            ] 50.0 %  step 1/2, loss 0.25");
  }

  TEST_CASE("in a narrow terminal the bar becomes shorter, then goes; then the last parts of the detail do") {
    const auto text = [](std::size_t width) {
      return progress_text("training", 0.5, "step 1/2, loss 0.25", width);
    };
    CHECK(text(49) == "training [█████     ] 50.0 %  step 1/2, loss 0.25");
    CHECK(text(45) == "training [███   ] 50.0 %  step 1/2, loss 0.25");
    CHECK(text(44) == "training 50.0 %  step 1/2, loss 0.25");
    CHECK(text(36) == "training 50.0 %  step 1/2, loss 0.25");
    CHECK(text(35) == "training 50.0 %  step 1/2");
    CHECK(text(20) == "training 50.0 %  ste");
    CHECK(text(5) == "train");
  }

  TEST_CASE("a table cuts names between characters, by the columns that they take") {
    pp::cli::Table table({{"name", pp::cli::Align::left}});
    table.add({"äöüäöüäöüäöü"});
    CHECK(table.text(8).find("\näöü...öü\n") != std::string::npos);  // five characters and three dots
  }

  TEST_CASE("a narrow table keeps what decides, and breaks lists behind bars") {
    using pp::cli::Align, pp::cli::Overflow;
    pp::cli::Table table({{"schedule", Align::left, Overflow::shorten, pp::cli::kWhole},
                          {"stages", Align::left, Overflow::wrap, 10},
                          {"devices", Align::left}});
    table.add({"interleaved", "222|111|333", "a/cuda:0 .. b/cuda:7"});
    CHECK(table.text(34) ==
          "schedule     stages      devices\n"
          "-----------  ----------  ---------\n"
          "interleaved  222|111|    a/c...a:7\n"
          "             333\n");
  }

  TEST_CASE("four equal items of a list, or more, are counted") {
    using pp::plan_tool::counted_runs;
    CHECK(counted_runs("2-2-2-2", '-') == "4 x 2");
    CHECK(counted_runs("2-2-2", '-') == "2-2-2");
    CHECK(counted_runs("8-1-1-1-1-1-3", '-') == "8, 5 x 1, 3");
    CHECK(counted_runs("all|all|all|all|-", '|') == "4 x all, -");
    CHECK(counted_runs("16", '|') == "16");
  }

  TEST_CASE("time left is told as clocks do, rounded up") {
    CHECK(clock(Seconds(0)) == "0:00");
    CHECK(clock(Seconds(64.2)) == "1:05");
    CHECK(clock(Seconds(7265)) == "2:01:05");
    CHECK(clock(Seconds(3 * 86400 + 7265)) == "3 d 02:01:05");
  }
}
