// The rows of a sweep as CSV and JSON, from one table of columns.
#include <array>
#include <nlohmann/json.hpp>

#include "libplan/report/csv_record.h"
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

template <class Value>
std::string record(const Value& value) {
  std::vector<Json> fields;
  for (const Column& column : kColumns) fields.push_back(value(column));
  return csv_record(fields);
}

}  // namespace

std::string_view status_of(const SweepRow& row) {
  const auto* failure = std::get_if<SweepFailure>(&row.result);
  return failure != nullptr ? name_of(failure->kind) : "planned";
}

std::string sweep_csv(std::span<const SweepRow> rows) {
  std::string text = record([](const Column& column) { return Json(column.name); });
  for (const SweepRow& row : rows) text += record([&](const Column& column) { return column.value(row); });
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
