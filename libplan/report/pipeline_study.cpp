// A study as JSON and CSV; the keys of pp.stage-times.
#include "libplan/report/pipeline_study.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "libplan/report/sweep.h"
#include "libplan/schedule/closed_forms.h"
#include "libprofile/core/index.h"
#include "libprofile/core/json_fields.h"

namespace pp::plan {

namespace {

constexpr Object kStageTimeRow{
    "stage_time_row",
    key<&StageTimeRow::micro_batches>("micro_batches", {.min = 1}),
    key<&StageTimeRow::stages>("stages_s", {.min = 1e-12}),
    optional<&StageTimeRow::printed>("printed_efficiency", kShare),
};

/// As many stages everywhere, more and more micro-batches.
void check_rows(StageTimeTable& table, ObjectReader& reader) {
  if (table.rows.empty()) reader.fail("rows", "has no entry; give the stages at one number of micro-batches");
  auto row = table.rows.begin();
  look_at_each(reader, "rows", [&](ObjectReader& member) {
    const std::size_t stages = table.rows.front().stages.size();
    if (row->stages.empty()) member.fail("stages_s", "has no entry; give the time of every stage");
    if (row->stages.size() != stages) {
      member.fail("stages_s", "has " + std::to_string(row->stages.size()) + " stages, the first row " +
                                  std::to_string(stages) + "; make them agree");
    }
    if (row != table.rows.begin() && row->micro_batches <= (row - 1)->micro_batches) {
      member.fail("micro_batches", std::to_string(row->micro_batches) + " does not come after " +
                                       std::to_string((row - 1)->micro_batches) +
                                       "; list them in ascending order");
    }
    ++row;
  });
}

constexpr Object kStageTimeTable{
    "stage_time_table",
    key<&StageTimeTable::title>("title"),
    optional<&StageTimeTable::remark>("remark"),
    key<&StageTimeTable::rows>("rows", kStageTimeRow),
    optional<&StageTimeTable::printed_mean>("printed_mean_efficiency", kShare),
    check<check_rows>(),
};

void check_stage_time_tables(StageTimeTables& times, ObjectReader& reader) {
  if (times.tables.empty()) reader.fail("tables", "has no entry; give one table of stage times");
}

constexpr Object kStageTimes{
    "stage-times",
    key<&StageTimeTables::name>("name"),
    key<&StageTimeTables::source>("source"),
    key<&StageTimeTables::tables>("tables", kStageTimeTable),
    check<check_stage_time_tables>(),
};

StudyRow study(const StageTimeRow& times) {
  StudyRow row{.micro_batches = times.micro_batches, .stages = times.stages};
  std::vector<double> seconds;
  for (const Seconds stage : times.stages) seconds.push_back(stage.count());
  row.time = Seconds(forward_time(seconds, row.micro_batches));
  row.serial = row.micro_batches * std::accumulate(row.stages.begin(), row.stages.end(), Seconds(0));
  row.efficiency = partition_efficiency(seconds);
  if (times.printed) row.printed = check_printed(*times.printed, row.efficiency);
  return row;
}

bool is_step_up(const StudyRow& from, const StudyRow& to) { return to.time > (1 + kNoStep) * from.time; }
bool is_step_down(const StudyRow& from, const StudyRow& to) { return is_step_up(to, from); }

Course course_of(const std::vector<StudyRow>& rows, std::size_t best) {
  const auto turn = rows.begin() + static_cast<std::ptrdiff_t>(best);
  const bool steady = std::adjacent_find(rows.begin(), turn + 1, is_step_up) == turn + 1 &&
                      std::adjacent_find(turn, rows.end(), is_step_down) == rows.end();
  if (!steady) return Course::mixed;
  if (best + 1 == rows.size()) return Course::falls;
  return best == 0 ? Course::rises : Course::falls_then_rises;
}

StudyTable study(const StageTimeTable& times) {
  StudyTable table{.title = times.title, .remark = times.remark};
  for (const StageTimeRow& row : times.rows) {
    table.rows.push_back(study(row));
    table.mean_efficiency += table.rows.back().efficiency / static_cast<double>(times.rows.size());
  }
  if (times.printed_mean) table.printed_mean = check_printed(*times.printed_mean, table.mean_efficiency);
  const auto least = std::ranges::min_element(table.rows, {}, &StudyRow::time);
  table.best = at(least - table.rows.begin());
  table.course = course_of(table.rows, table.best);
  return table;
}

Json figure_json(const CheckedFigure& figure) {
  return {{"efficiency", figure.printed}, {"verdict", name_of(figure.verdict)}};
}

Json row_json(const StudyRow& row) {
  Json json{{"micro_batches", row.micro_batches}, {"stages_s", Json::array()}};
  for (const Seconds stage : row.stages) json["stages_s"].push_back(stage.count());
  json["time_s"] = row.time.count();
  json["serial_s"] = row.serial.count();
  json["efficiency"] = row.efficiency;
  if (row.printed) json["printed"] = figure_json(*row.printed);
  return json;
}

Json table_json(const StudyTable& table) {
  Json json{{"title", table.title}};
  if (!table.remark.empty()) json["remark"] = table.remark;
  json["rows"] = Json::array();
  for (const StudyRow& row : table.rows) json["rows"].push_back(row_json(row));
  json["mean_efficiency"] = table.mean_efficiency;
  if (table.printed_mean) json["printed_mean"] = figure_json(*table.printed_mean);
  json["best_micro_batches"] = table.rows[table.best].micro_batches;
  json["course"] = name_of(table.course);
  return json;
}

std::string csv_row(const StudyTable& table, const StudyRow& row, std::size_t columns) {
  std::vector<Json> fields{table.title, row.micro_batches, row.time.count(), row.serial.count(),
                           row.efficiency};
  if (row.printed) {
    fields.insert(fields.end(), {row.printed->printed, name_of(row.printed->verdict)});
  } else {
    fields.resize(fields.size() + 2);
  }
  for (const Seconds stage : row.stages) fields.emplace_back(stage.count());
  fields.resize(columns);
  return csv_record(fields);
}

}  // namespace

PipelineStudy study(const StageTimeTables& times) {
  PipelineStudy result{times.name, times.source, {}};
  for (const StageTimeTable& table : times.tables) result.tables.push_back(study(table));
  return result;
}

CheckedFigure check_printed(double printed, double recomputed) {
  const double unit = 100 * std::pow(10, kEfficiencyDigits);
  const double digits = std::round(unit * printed);
  if (std::round(unit * recomputed) == digits) return {printed, Printed::agrees};
  return {printed, std::floor(unit * recomputed) == digits ? Printed::cut_off : Printed::wrong};
}

Keys stage_times_keys() { return keys_of(kStageTimes); }

StageTimeTables stage_times_from_json(const Json& json) { return document_from_json(kStageTimes, json); }

Json to_json(const StageTimeTables& times) { return document_json(kStageTimes, times); }

std::variant<StageTimeTables, Profile> parse_study_input(std::string_view text) {
  const Json json = parse_json(text);
  const std::string format = ObjectReader(json, {}).text("format");
  if (format == "pp.stage-times") return stage_times_from_json(json);
  if (format == "pp.profile") return profile_from_json(json);
  throw Error(ErrorKind::data,
              "/format: is \"" + format + "\"; a study reads a \"pp.profile\" or a \"pp.stage-times\"");
}

Json to_json(const PipelineStudy& study) {
  Json json{{"name", study.name}, {"source", study.source}, {"tables", Json::array()}};
  for (const StudyTable& table : study.tables) json["tables"].push_back(table_json(table));
  return json;
}

std::string study_csv(const PipelineStudy& study) {
  std::vector<Json> titles{"table",      "micro_batches",      "time_s", "serial_s",
                           "efficiency", "printed_efficiency", "verdict"};
  std::size_t stages = 0;
  for (const StudyTable& table : study.tables) stages = std::max(stages, table.rows.front().stages.size());
  for (std::size_t s = 0; s < stages; ++s) titles.emplace_back("stage_" + std::to_string(s) + "_s");
  std::string text = csv_record(titles);
  for (const StudyTable& table : study.tables) {
    for (const StudyRow& row : table.rows) text += csv_row(table, row, titles.size());
  }
  return text;
}

}  // namespace pp::plan
