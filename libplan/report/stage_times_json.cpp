// The keys of pp.stage-times.
#include <nlohmann/json.hpp>

#include "libplan/json_values.h"
#include "libplan/report/pipeline_study.h"

namespace pp::plan {
namespace {

constexpr std::string_view kFormat = "pp.stage-times";
constexpr int kVersion = 1;
constexpr NumberRange kTimes{.min = 1e-12};
constexpr NumberRange kShare{.max = 1};

std::optional<double> read_share(ObjectReader& reader, std::string_view key) {
  return reader.has(key) ? std::optional(reader.number(key, kShare)) : std::nullopt;
}

StageTimeRow read_row(ObjectReader& reader) {
  StageTimeRow row{.micro_batches = small_integer(reader, "micro_batches", 1)};
  for (const double time : reader.numbers("stages_s", kTimes)) row.stages.emplace_back(time);
  row.printed = read_share(reader, "printed_efficiency");
  return row;
}

/// As many stages everywhere, more and more micro-batches.
void check_after(const StageTimeTable& table, const StageTimeRow& row, const ObjectReader& reader) {
  if (row.stages.empty()) reader.fail("stages_s", "has no entry; give the time of every stage");
  if (table.rows.empty()) return;
  const StageTimeRow& last = table.rows.back();
  if (row.stages.size() != table.rows.front().stages.size()) {
    reader.fail("stages_s", "has " + std::to_string(row.stages.size()) + " stages, the first row " +
                                std::to_string(table.rows.front().stages.size()) + "; make them agree");
  }
  if (row.micro_batches <= last.micro_batches) {
    reader.fail("micro_batches", std::to_string(row.micro_batches) + " does not come after " +
                                     std::to_string(last.micro_batches) + "; list them in ascending order");
  }
}

StageTimeTable read_table(ObjectReader& reader) {
  StageTimeTable table{.title = reader.text("title")};
  if (reader.has("remark")) table.remark = reader.text("remark");
  reader.objects("rows", [&](ObjectReader& member) {
    const StageTimeRow row = read_row(member);
    check_after(table, row, member);
    table.rows.push_back(row);
  });
  if (table.rows.empty()) reader.fail("rows", "has no entry; give the stages at one number of micro-batches");
  table.printed_mean = read_share(reader, "printed_mean_efficiency");
  return table;
}

Json row_json(const StageTimeRow& row) {
  Json json{{"micro_batches", row.micro_batches}, {"stages_s", Json::array()}};
  for (const Seconds time : row.stages) json["stages_s"].push_back(time.count());
  if (row.printed) json["printed_efficiency"] = *row.printed;
  return json;
}

Json table_json(const StageTimeTable& table) {
  Json json{{"title", table.title}};
  if (!table.remark.empty()) json["remark"] = table.remark;
  json["rows"] = Json::array();
  for (const StageTimeRow& row : table.rows) json["rows"].push_back(row_json(row));
  if (table.printed_mean) json["printed_mean_efficiency"] = *table.printed_mean;
  return json;
}

}  // namespace

StageTimeTables stage_times_from_json(const Json& json) {
  StageTimeTables times;
  read_document(json, kFormat, kVersion, [&](ObjectReader& reader) {
    times.name = reader.text("name");
    times.source = reader.text("source");
    reader.objects("tables", [&](ObjectReader& member) { times.tables.push_back(read_table(member)); });
    if (times.tables.empty()) reader.fail("tables", "has no entry; give one table of stage times");
  });
  return times;
}

Json to_json(const StageTimeTables& times) {
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"name", times.name},
            {"source", times.source},
            {"tables", Json::array()}};
  for (const StageTimeTable& table : times.tables) json["tables"].push_back(table_json(table));
  return json;
}

std::variant<StageTimeTables, Profile> parse_study_input(std::string_view text) {
  const Json json = parse_json(text);
  const std::string format = ObjectReader(json, {}).text("format");
  if (format == kFormat) return stage_times_from_json(json);
  if (format == "pp.profile") return profile_from_json(json);
  throw Error(ErrorKind::data, "/format: is \"" + format + "\"; a study reads a \"pp.profile\" or a \"" +
                                   std::string(kFormat) + "\"");
}

}  // namespace pp::plan
