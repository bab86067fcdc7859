// Studies of stage times: the VGG16 pipeline report's tables to their printed digits, and the document.
#include "libplan/report/pipeline_study.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/libplan/schedule/golden_cases.h"

#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace pp::plan::pipeline_study_test {
namespace {

using nlohmann::json;
using test::error_of;

std::string shipped_text() { return read_file(pp::test::repository("configs/study/vgg16-report.json")); }

PipelineStudy shipped() { return study(stage_times_from_json(parse_json(shipped_text()))); }

json report_case(const std::string& name) { return test::golden_case("vgg16_report", name); }

/// The row's figure has the same digits as the golden one.
void check_digits(double value, const json& expected, std::size_t row, int digits) {
  const double unit = std::pow(10, digits);
  CHECK(std::round(unit * value) == std::round(unit * expected.at(row).get<double>()));
}

/// Tables 4.2 and 4.3, with their efficiencies and what is printed of them.
void check_table(const StudyTable& table, const std::string& efficiency, const std::string& time) {
  const json entry = report_case(efficiency), inputs = entry.at("inputs"), printed = entry.at("printed");
  const json times = report_case(time).at("expected");
  REQUIRE(table.rows.size() == inputs.at("micro_batches").size());
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const StudyRow& row = table.rows[i];
    CAPTURE(i);
    CHECK(row.micro_batches == inputs.at("micro_batches").at(i).get<int>());
    REQUIRE(row.stages.size() == inputs.at("stage_ms").size());
    for (std::size_t s = 0; s < row.stages.size(); ++s)
      CHECK(1e3 * row.stages[s].count() ==
            doctest::Approx(inputs.at("stage_ms").at(s).at(i).get<double>()).epsilon(1e-12));
    check_digits(1e3 * row.time.count(), times.at("time_ms"), i, 3);
    check_digits(100 * row.efficiency, entry.at("expected").at("efficiency_percent"), i, 2);
    REQUIRE(row.printed.has_value());
    CHECK(100 * row.printed->printed ==
          doctest::Approx(printed.at("efficiency_percent").at(i).get<double>()).epsilon(1e-12));
    CHECK((row.printed->verdict == Printed::wrong) == printed.at("wrong").at(i).get<bool>());
  }
  CHECK(std::round(1e4 * table.mean_efficiency) ==
        std::round(1e2 * entry.at("expected").at("efficiency_percent_mean").get<double>()));
  REQUIRE(table.printed_mean.has_value());
  CHECK(100 * table.printed_mean->printed ==
        doctest::Approx(printed.at("efficiency_percent_mean").get<double>()).epsilon(1e-12));
  CHECK(table.rows[table.best].micro_batches == times.at("best_m").get<int>());
  CHECK(table.course == Course::falls_then_rises);
}

/// One stage; time(m) = m * seconds.
StageTimeTables one_stage(const std::vector<std::pair<int, double>>& rows) {
  StageTimeTable table{.title = "one stage"};
  for (const auto& [micro_batches, seconds] : rows) table.rows.push_back({micro_batches, {Seconds(seconds)}});
  return {"a pipeline", "by hand", {table}};
}

/// A valid document of two rows, changed by `change`.
template <class Change>
std::string refusal(const Change& change) {
  Json document = to_json(one_stage({{1, 2.0}, {2, 1.0}}));
  change(document);
  return error_of([&] { stage_times_from_json(document); });
}

TEST_SUITE("libplan/report/pipeline_study") {
  TEST_CASE("the VGG16 report's tables come out to the printed digits, wrong cells are told") {
    const PipelineStudy tables = shipped();
    REQUIRE(tables.tables.size() == 2);
    check_table(tables.tables[0], "table 4.2 efficiency without communication",
                "time(m) without communication");
    check_table(tables.tables[1], "table 4.3 efficiency with communication", "time(m) with communication");
    CHECK(tables.tables[0].printed_mean->verdict == Printed::agrees);
    CHECK(tables.tables[1].printed_mean->verdict == Printed::wrong);
    CHECK(tables.tables[1].rows[0].printed->verdict == Printed::cut_off);  // 88.758 %, printed 88.75
    const json serial = report_case("m * sum of stages, table 4.2").at("expected").at("serial_ms");
    for (std::size_t i = 0; i < serial.size(); ++i)
      check_digits(1e3 * tables.tables[0].rows[i].serial.count(), serial, i, 3);
  }

  TEST_CASE("a printed figure agrees when it was rounded, is told when it was cut off, else is wrong") {
    CHECK(check_printed(0.8876, 0.88756).verdict == Printed::agrees);
    CHECK(check_printed(0.8875, 0.88756).verdict == Printed::cut_off);
    CHECK(check_printed(0.8877, 0.88756).verdict == Printed::wrong);
    CHECK(check_printed(0.8874, 0.88756).verdict == Printed::wrong);
    CHECK(check_printed(0.9055, 0.88338).verdict == Printed::wrong);
  }

  TEST_CASE("of equal times the fewest micro-batches are best; the course is named") {
    const auto table = [](const std::vector<std::pair<int, double>>& rows) {
      return study(one_stage(rows)).tables.front();
    };
    const StudyTable turns = table({{1, 9}, {2, 4}, {4, 2}, {8, 2}});  // 9, 8, 8, 16
    CHECK(turns.rows[turns.best].micro_batches == 2);
    CHECK(turns.course == Course::falls_then_rises);
    CHECK(table({{1, 9}, {2, 4}, {4, 1}}).course == Course::falls);              // 9, 8, 4
    CHECK(table({{1, 3}, {2, 2}, {4, 2}}).course == Course::rises);              // 3, 4, 8
    CHECK(table({{1, 9}, {2, 5}, {4, 1}, {8, 1}}).course == Course::mixed);      // 9, 10, 4, 8
    CHECK(table({{1, 9}, {2, 4}, {4, 2.5}, {8, 1.2}}).course == Course::mixed);  // 9, 8, 10, 9.6
    // Up by 1 % and down by 1 %.
    CHECK(table({{1, 9}, {2, 4.545}, {4, 1}, {8, 0.625}, {16, 0.309375}}).course == Course::falls_then_rises);
  }

  TEST_CASE("the document reads back as it was written") {
    const StageTimeTables times = stage_times_from_json(parse_json(shipped_text()));
    CHECK(stage_times_from_json(to_json(times)) == times);
    CHECK(std::holds_alternative<StageTimeTables>(parse_study_input(shipped_text())));
    const StageTimeTables plain = one_stage({{1, 2.0}});
    CHECK(stage_times_from_json(to_json(plain)) == plain);
  }

  TEST_CASE("documents are refused with the place") {
    CHECK(refusal([](Json&) {}).empty());
    CHECK(refusal([](Json& d) { d["tables"] = Json::array(); }) ==
          "/tables: has no entry; give one table of stage times");
    CHECK(refusal([](Json& d) { d["tables"][0]["rows"] = Json::array(); }) ==
          "/tables/0/rows: has no entry; give the stages at one number of micro-batches");
    CHECK(refusal([](Json& d) { d["tables"][0]["rows"][1]["stages_s"] = Json::array(); }) ==
          "/tables/0/rows/1/stages_s: has no entry; give the time of every stage");
    CHECK(refusal([](Json& d) { d["tables"][0]["rows"][1]["stages_s"].push_back(1); }) ==
          "/tables/0/rows/1/stages_s: has 2 stages, the first row 1; make them agree");
    CHECK(refusal([](Json& d) { d["tables"][0]["rows"][1]["micro_batches"] = 1; }) ==
          "/tables/0/rows/1/micro_batches: 1 does not come after 1; list them in ascending order");
    CHECK(refusal([](Json& d) { d["tables"][0]["rows"][0]["stages_s"][0] = 0; }) ==
          "/tables/0/rows/0/stages_s/0: must be a number from 1e-12 upwards, not 0");
    CHECK(refusal([](Json& d) { d["tables"][0]["rows"][0]["printed_efficiency"] = 79.12; }) ==
          "/tables/0/rows/0/printed_efficiency: must be a number from 0.0 to 1.0, not 79.12");
    CHECK(error_of([] { parse_study_input(R"({"format": "pp.plan", "version": 1})"); }) ==
          "/format: is \"pp.plan\"; a study reads a \"pp.profile\" or a \"pp.stage-times\"");
  }

  TEST_CASE("CSV has a record per row, a table of fewer stages empty fields") {
    StageTimeTables times = one_stage({{1, 2.0}});
    times.tables.push_back({"two, with a comma", "", {{2, {Seconds(1), Seconds(3)}, 0.5}}});
    CHECK(study_csv(study(times)) ==
          "table,micro_batches,time_s,serial_s,efficiency,printed_efficiency,verdict,stage_0_s,stage_1_s\n"
          "one stage,1,2.0,2.0,1.0,,,2.0,\n"
          "\"two, with a comma\",2,7.0,8.0,0.6666666666666666,0.5,wrong,1.0,3.0\n");
  }
}

}  // namespace
}  // namespace pp::plan::pipeline_study_test
