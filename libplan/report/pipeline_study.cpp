// A study as JSON and CSV.
#include "libplan/report/pipeline_study.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "libplan/report/sweep.h"
#include "libplan/schedule/closed_forms.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

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
