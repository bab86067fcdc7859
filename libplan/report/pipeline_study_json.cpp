// A study as JSON and CSV.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libplan/report/csv_record.h"
#include "libplan/report/pipeline_study.h"

namespace pp::plan {
namespace {

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
