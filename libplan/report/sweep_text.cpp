// The rows of a sweep as CSV and JSON, from one table of columns.
#include <array>
#include <nlohmann/json.hpp>

#include "libplan/report/sweep.h"

namespace pp::plan {
namespace {

struct Column {
  std::string_view name;
  Json (*value)(const SweepRow& row);  ///< null: the row has none
};

template <auto kValue>
Json of_figures(const SweepRow& row) {
  const SweepFigures* figures = row.figures();
  return figures != nullptr ? Json(kValue(*figures)) : Json();
}

Json reason_of(const SweepRow& row) {
  const auto* failure = std::get_if<SweepFailure>(&row.result);
  return failure != nullptr ? Json(failure->reason) : Json();
}

constexpr std::array kColumns{
    Column{"devices", [](const SweepRow& row) { return Json(row.devices); }},
    Column{"schedule", [](const SweepRow& row) { return Json(row.schedule); }},
    Column{"micro_batches", [](const SweepRow& row) { return Json(row.micro_batches); }},
    Column{"status", [](const SweepRow& row) { return Json(status_of(row)); }},
    Column{"stages", of_figures<[](const SweepFigures& f) { return f.stages; }>},
    Column{"replicas", of_figures<[](const SweepFigures& f) { return f.replicas; }>},
    Column{"step_s", of_figures<[](const SweepFigures& f) { return f.step.count(); }>},
    Column{"samples_per_s", of_figures<[](const SweepFigures& f) { return f.samples_per_s; }>},
    Column{"bubble_fraction", of_figures<[](const SweepFigures& f) { return f.bubble_fraction; }>},
    Column{"peak_bytes", of_figures<[](const SweepFigures& f) { return f.peak.value; }>},
    Column{"gap", of_figures<[](const SweepFigures& f) { return f.gap; }>},
    Column{"reason", reason_of}};

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field.append(c == '"' ? 2 : 1, c);
  return field + '"';
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? quoted(value.get<std::string>()) : value.dump();
}

template <class Field>
std::string csv_line(const Field& field) {
  std::string line;
  for (const Column& column : kColumns) line.append(line.empty() ? "" : ",").append(field(column));
  return line + '\n';
}

}  // namespace

std::string_view status_of(const SweepRow& row) {
  const auto* failure = std::get_if<SweepFailure>(&row.result);
  return failure != nullptr ? name_of(failure->kind) : "planned";
}

std::string sweep_csv(std::span<const SweepRow> rows) {
  std::string text = csv_line([](const Column& column) { return std::string(column.name); });
  for (const SweepRow& row : rows)
    text += csv_line([&](const Column& column) { return csv_field(column.value(row)); });
  return text;
}

Json to_json(std::span<const SweepRow> rows) {
  Json array = Json::array();
  for (const SweepRow& row : rows) {
    Json& object = array.emplace_back(Json::object());
    for (const Column& column : kColumns) {
      Json value = column.value(row);
      if (!value.is_null()) object[std::string(column.name)] = std::move(value);
    }
  }
  return array;
}

}  // namespace pp::plan
