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
Json of_throughput(const SweepRow& row) {
  const SweepFigures* figures = row.figures();
  if (figures == nullptr) return {};
  const std::optional<double> value = kValue(figures->throughput);
  return value ? Json(*value) : Json();
}

using Maybe = std::optional<double>;
Maybe known(double value) { return value > 0 ? Maybe(value) : std::nullopt; }
Maybe seconds(const std::optional<Seconds>& time) { return time ? Maybe(time->count()) : std::nullopt; }

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
    Column{"micro_batches",
           [](const SweepRow& row) { return row.micro_batches > 0 ? Json(row.micro_batches) : Json(); }},
    Column{"status", [](const SweepRow& row) { return Json(status_of(row)); }},
    Column{"stages", of_figures<[](const SweepFigures& f) { return f.stages; }>},
    Column{"replicas", of_figures<[](const SweepFigures& f) { return f.replicas; }>},
    Column{"step_s", of_figures<[](const SweepFigures& f) { return f.step.count(); }>},
    Column{"samples_per_s", of_figures<[](const SweepFigures& f) { return f.samples_per_s; }>},
    Column{"bubble_fraction", of_figures<[](const SweepFigures& f) { return f.bubble_fraction; }>},
    Column{"peak_bytes", of_figures<[](const SweepFigures& f) { return f.peak.value; }>},
    Column{"gap", of_figures<[](const SweepFigures& f) { return f.gap; }>},
    Column{"reason", reason_of},
    Column{"tokens_per_s", of_throughput<[](const Throughput& t) {
             return t.of_tokens() ? Maybe(t.items_per_s()) : std::nullopt;
           }>},
    Column{"model_flops_per_s_per_device",
           of_throughput<[](const Throughput& t) { return known(t.model_flops_per_s / t.devices); }>},
    Column{"mfu", of_throughput<[](const Throughput& t) { return t.model_utilisation(); }>},
    Column{"hfu", of_throughput<[](const Throughput& t) { return t.hardware_utilisation(); }>},
    Column{"cost_per_million", of_throughput<[](const Throughput& t) { return t.cost_per_million(); }>},
    Column{"duration_s", of_throughput<[](const Throughput& t) { return seconds(t.duration()); }>},
    Column{"cost", of_throughput<[](const Throughput& t) { return t.cost(); }>}};

constexpr std::string_view kFront = "front";

/// Of the profile that the row's plan was made from.
constexpr std::array kProfileColumns{
    Column{"tensor_degree", [](const SweepRow& row) { return Json(row.tensor_degree); }},
    Column{"cores_per_device",
           [](const SweepRow& row) { return row.cores_per_device > 0 ? Json(row.cores_per_device) : Json(); }},
    Column{"estimated", [](const SweepRow& row) { return Json(row.estimated); }}};

template <class Value>
std::string record(const Value& value, Json front) {
  std::vector<Json> fields;
  for (const Column& column : kColumns) fields.push_back(value(column));
  fields.push_back(std::move(front));
  for (const Column& column : kProfileColumns) fields.push_back(value(column));
  return csv_record(fields);
}

void add_columns(Json& object, std::span<const Column> columns, const SweepRow& row) {
  for (const Column& column : columns) {
    Json value = column.value(row);
    if (!value.is_null()) object[std::string(column.name)] = std::move(value);
  }
}

}  // namespace

std::string_view status_of(const SweepRow& row) {
  const auto* failure = std::get_if<SweepFailure>(&row.result);
  return failure != nullptr ? name_of(failure->kind) : "planned";
}

std::string sweep_csv(std::span<const SweepRow> rows) {
  const std::vector<bool> front = pareto_front(rows);
  std::string text = record([](const Column& column) { return Json(column.name); }, kFront);
  for (std::size_t r = 0; r < rows.size(); ++r)
    text += record([&](const Column& column) { return column.value(rows[r]); }, bool(front[r]));
  return text;
}

Json to_json(std::span<const SweepRow> rows) {
  const std::vector<bool> front = pareto_front(rows);
  Json array = Json::array();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    Json& object = array.emplace_back(Json::object());
    add_columns(object, kColumns, rows[r]);
    object[std::string(kFront)] = bool(front[r]);
    add_columns(object, kProfileColumns, rows[r]);
  }
  return array;
}

}  // namespace pp::plan
