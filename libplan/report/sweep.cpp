// The rows of a sweep as CSV and JSON, from one table of columns.
#include "libplan/report/sweep.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/search/parallel.h"

namespace pp::plan {

namespace {

/// One combination.
struct Cell {
  const Cluster* cluster;
  int mini_batch;
  std::string schedule;
  int micro_batches;
};

std::vector<Cell> cells_of(const SweepSpec& spec) {
  std::vector<Cell> cells;
  for (const Cluster& cluster : spec.clusters) {
    for (const int mini_batch : spec.mini_batches) {
      for (const std::string& schedule : spec.schedules) {
        for (const int count : spec.micro_batches) cells.push_back({&cluster, mini_batch, schedule, count});
      }
    }
  }
  return cells;
}

SweepFigures figures_of(const Plan& plan, const TrainingBudget& budget) {
  Bytes peak;
  for (const WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  return {.stages = stages_text(plan),
          .replicas = replicas_text(plan),
          .step = plan.predicted.step,
          .samples_per_s = plan.predicted.samples_per_s,
          .bubble_fraction = plan.predicted.bubble_fraction,
          .peak = peak,
          .gap = plan.certificate.gap,
          .throughput = throughput_of(plan, budget),
          .micro_batches = plan.training.micro_batches};
}

std::variant<SweepFigures, SweepFailure> best_of(const Profile& profile, const Cell& cell,
                                                 const SweepSpec& spec) {
  PlanRequest request = spec.request;
  request.mini_batch = cell.mini_batch;
  request.schedule = cell.schedule;
  request.micro_batches.reset();
  request.micro_batch_size.reset();
  if (cell.micro_batches > 0) request.micro_batches = cell.micro_batches;
  try {
    const auto result =
        make_plan(profile, *cell.cluster, narrowed(profile, *cell.cluster, request, spec.strategy));
    if (const auto* none = std::get_if<Infeasible>(&result))
      return SweepFailure{SweepFailure::Kind::infeasible, none->reason};
    return figures_of(std::get<Plan>(result), spec.budget);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::usage) throw;
    return SweepFailure{SweepFailure::Kind::refused, e.what()};
  }
}

void check(const SweepSpec& spec) {
  for (const std::string& name : spec.schedules) {
    if (name != "auto") require_schedule(name);
  }
  if (spec.mini_batches.empty())
    throw Error(ErrorKind::usage,
                "mini_batch = 0: the samples per optimizer update are not given; add --mini-batch N");
}

/// The distinct values of a member, in the order of the rows.
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

/// What was added later: the profile that the row's plan was made from, the mini-batch.
constexpr std::array kLaterColumns{
    Column{"tensor_degree", [](const SweepRow& row) { return Json(row.tensor_degree); }},
    Column{"cores_per_device",
           [](const SweepRow& row) { return row.cores_per_device > 0 ? Json(row.cores_per_device) : Json(); }},
    Column{"estimated", [](const SweepRow& row) { return Json(row.estimated); }},
    Column{"mini_batch", [](const SweepRow& row) { return Json(row.mini_batch); }}};

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

template <class Value>
std::string record(const Value& value, Json front) {
  std::vector<Json> fields;
  for (const Column& column : kColumns) fields.push_back(value(column));
  fields.push_back(std::move(front));
  for (const Column& column : kLaterColumns) fields.push_back(value(column));
  std::string line;
  for (const Json& field : fields) line.append(&field == fields.data() ? "" : ",").append(csv_field(field));
  return line + '\n';
}

void add_columns(Json& object, std::span<const Column> columns, const SweepRow& row) {
  for (const Column& column : columns) {
    Json value = column.value(row);
    if (!value.is_null()) object[std::string(column.name)] = std::move(value);
  }
}

}  // namespace

std::vector<SweepRow> sweep(const Profile& profile, const SweepSpec& spec) {
  check(spec);
  check_budget(spec.budget, profile.model);
  const std::vector<Cell> cells = cells_of(spec);
  std::vector<SweepRow> rows(cells.size());
  for_each_index(cells.size(), spec.threads, [&](std::size_t i) {
    const Cell& cell = cells[i];
    rows[i] = {static_cast<int>(cell.cluster->devices.size()) * group_size(profile),
               cell.schedule,
               cell.micro_batches,
               best_of(profile, cell, spec),
               profile.tensor_degree,
               profile.device.kind == DeviceKind::cpu ? profile.device.cores_per_device : 0,
               profile.mode == ProfileMode::estimated,
               cell.mini_batch};
    if (const SweepFigures* promised = rows[i].figures()) rows[i].micro_batches = promised->micro_batches;
  });
  return rows;
}

std::vector<SweepRow> best_rows(std::span<const std::vector<SweepRow>> sweeps) {
  std::vector<SweepRow> best = sweeps.front();
  const auto step = [](const SweepRow& row) {
    return row.figures() ? row.figures()->step : Seconds(std::numeric_limits<double>::infinity());
  };
  for (const std::vector<SweepRow>& rows : sweeps.subspan(1)) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (step(rows[i]) < step(best[i])) best[i] = rows[i];
  }
  return best;
}

std::vector<bool> pareto_front(std::span<const SweepRow> rows) {
  const auto time = [&](std::size_t i) { return 1 / rows[i].figures()->samples_per_s; };
  const auto money = [&](std::size_t i) { return rows[i].devices * time(i); };
  const auto beats = [&](std::size_t a, std::size_t b) {
    if (time(a) > time(b) || money(a) > money(b)) return false;
    return time(a) < time(b) || money(a) < money(b) || a < b;
  };
  std::vector<bool> front(rows.size());
  for (std::size_t b = 0; b < rows.size(); ++b) {
    front[b] = rows[b].figures() != nullptr;
    for (std::size_t a = 0; a < rows.size() && front[b]; ++a)
      front[b] = a == b || rows[a].figures() == nullptr || !beats(a, b);
  }
  return front;
}

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
    add_columns(object, kLaterColumns, rows[r]);
  }
  return array;
}

}  // namespace pp::plan
