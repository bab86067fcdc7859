// The only place that knows the keys of pp.report.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "libprofile/core/context.h"
#include "librun/report/report.h"
#include "librun/report/report_parts_json.h"

namespace pp::run {

namespace {

constexpr auto kReportFormat = "pp.report";
constexpr int kReportVersion = 1;

Json write(const EpochReport& epoch) {
  Json json{{"epoch", epoch.epoch}, {"train_loss", loss_json(epoch.train_loss)}};
  if (epoch.test_loss) json["test_loss"] = loss_json(*epoch.test_loss);
  if (epoch.test_accuracy) json["test_accuracy"] = *epoch.test_accuracy;
  json["samples_per_s"] = epoch.samples_per_s;
  json["last_step"] = epoch.last_step;
  json["elapsed_s"] = epoch.elapsed.count();
  json["evaluation_s"] = epoch.evaluation.count();
  return json;
}

Json write(const EvaluationReport& evaluation) {
  Json json{{"epoch", evaluation.epoch}, {"step", evaluation.step}};
  if (evaluation.test_loss) json["test_loss"] = loss_json(*evaluation.test_loss);
  if (evaluation.test_accuracy) json["test_accuracy"] = *evaluation.test_accuracy;
  json["elapsed_s"] = evaluation.elapsed.count();
  json["evaluation_s"] = evaluation.time.count();
  return json;
}

Json write(const BestReport& best) {
  Json json{{"step", best.step}, {"test_loss", best.test_loss}, {"evaluations_since", best.evaluations_since}};
  if (!best.checkpoint.empty()) json["checkpoint"] = best.checkpoint;
  return json;
}

Json write(const SwapsReport& swaps) {
  return {{"count", swaps.count}, {"bytes", swaps.bytes.value}, {"time_s", swaps.time.count()}};
}

Json write(const GraphCount& graphs) {
  return {{"recorded", graphs.recorded}, {"replayed", graphs.replayed}, {"bytes", graphs.bytes.value}};
}

Json write(const WorkerReport& worker) {
  Json json{{"id", number(worker.id)},
            {"busy_s", worker.busy.count()},
            {"bubble_fraction", worker.bubble_fraction},
            {"peak_bytes", worker.peak.value},
            {"parts",
             {{"weights", worker.weights.value},
              {"gradients", worker.gradients.value},
              {"optimizer", worker.optimizer.value},
              {"versions", worker.versions.value},
              {"saved", worker.saved.value}}},
            {"peak_in_flight", worker.peak_in_flight},
            {"peak_versions", worker.peak_versions},
            {"sent_bytes_per_step", worker.sent_per_step.value}};
  if (worker.swaps_in) json["swaps_in"] = write(*worker.swaps_in);
  if (worker.swaps_out) json["swaps_out"] = write(*worker.swaps_out);
  if (worker.graphs) json["graphs"] = write(*worker.graphs);
  return json;
}

Json write(const OpTime& row) {
  Json json{{"kind", name_of(row.kind)},
            {"stage", number(row.stage)},
            {"count", row.count},
            {"predicted_s", row.predicted.count()},
            {"median_s", row.median.count()}};
  for (const Seconds replica : row.replicas) json["replica_medians_s"].push_back(replica.count());
  return json;
}

Json write(const CheckpointsReport& checkpoints) {
  Json json{{"written", checkpoints.written},
            {"size_bytes", checkpoints.size.value},
            {"pause_s", checkpoints.pause.count()},
            {"write_s", checkpoints.write.count()}};
  if (checkpoints.choice) {
    json["cost_s"] = checkpoints.choice->cost.count();
    json["interval_s"] = checkpoints.choice->interval.count();
  }
  return json;
}

Json write(const LostAttempt& lost) { return to_json(lost); }
Json write(const SlowDevice& slow) { return to_json(slow); }

Json write(const FramesReport& frames) {
  return {{"period_s", frames.period.count()}, {"latency_s", frames.latency.count()}, {"delay", frames.delay}};
}

Json write(const ReplicasReport& replicas) {
  return {{"mean_staleness", replicas.mean_staleness},
          {"largest_staleness", replicas.largest_staleness},
          {"largest_lead", replicas.largest_lead},
          {"pushed_bytes_per_step", replicas.pushed_per_step.value},
          {"fetched_bytes_per_step", replicas.fetched_per_step.value}};
}

Json write(const Comparison& row) {
  return {{"name", row.name}, {"predicted", row.predicted}, {"measured", row.measured}, {"ratio", row.ratio}};
}

template <class Value>
Json write_all(const std::vector<Value>& values) {
  Json json = Json::array();
  for (const Value& value : values) json.push_back(write(value));
  return json;
}

// Losses may be any finite number, also below zero.
constexpr NumberRange kAnyNumber{std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};

// loss_json()
double read_loss(ObjectReader& reader, std::string_view key) {
  if (reader.raw(key).is_null()) return std::numeric_limits<double>::quiet_NaN();
  return reader.number(key, kAnyNumber);
}

EpochReport read_epoch(ObjectReader& reader) {
  EpochReport epoch;
  epoch.epoch = static_cast<int>(reader.integer("epoch", {0, std::numeric_limits<int>::max()}));
  epoch.train_loss = read_loss(reader, "train_loss");
  if (reader.has("test_loss")) epoch.test_loss = read_loss(reader, "test_loss");
  if (reader.has("test_accuracy")) epoch.test_accuracy = reader.number("test_accuracy", {0, 1});
  epoch.samples_per_s = reader.number("samples_per_s");
  epoch.last_step = reader.integer("last_step");
  epoch.elapsed = Seconds(reader.number("elapsed_s", kTimes));
  epoch.evaluation = Seconds(reader.number("evaluation_s", kTimes));
  return epoch;
}

EvaluationReport read_evaluation(ObjectReader& reader) {
  EvaluationReport evaluation;
  evaluation.epoch = static_cast<int>(reader.integer("epoch", {0, std::numeric_limits<int>::max()}));
  evaluation.step = reader.integer("step");
  if (reader.has("test_loss")) evaluation.test_loss = read_loss(reader, "test_loss");
  if (reader.has("test_accuracy")) evaluation.test_accuracy = reader.number("test_accuracy", {0, 1});
  evaluation.elapsed = Seconds(reader.number("elapsed_s", kTimes));
  evaluation.time = Seconds(reader.number("evaluation_s", kTimes));
  return evaluation;
}

BestReport read_best(ObjectReader& reader) {
  return {reader.integer("step"), reader.number("test_loss", kAnyNumber), reader.integer("evaluations_since"),
          reader.has("checkpoint") ? reader.text("checkpoint") : ""};
}

std::optional<SwapsReport> read_swaps(ObjectReader& reader, std::string_view key) {
  if (!reader.has(key)) return std::nullopt;
  SwapsReport swaps;
  reader.object(key, [&](ObjectReader& way) {
    swaps = {way.integer("count"), Bytes(way.integer("bytes")), Seconds(way.number("time_s", kTimes))};
  });
  return swaps;
}

std::optional<GraphCount> read_graphs(ObjectReader& reader) {
  if (!reader.has("graphs")) return std::nullopt;
  GraphCount graphs;
  reader.object("graphs", [&](ObjectReader& count) {
    graphs = {count.integer("recorded"), count.integer("replayed"), Bytes(count.integer("bytes"))};
  });
  return graphs;
}

WorkerReport read_worker(ObjectReader& reader, std::size_t workers) {
  WorkerReport worker;
  const IntegerRange count{0, std::numeric_limits<int>::max()};
  worker.id = read_worker_id(reader, "id", workers);
  worker.busy = Seconds(reader.number("busy_s", kTimes));
  worker.bubble_fraction = reader.number("bubble_fraction", {0, 1});
  worker.peak = Bytes(reader.integer("peak_bytes"));
  reader.object("parts", [&](ObjectReader& parts) {
    worker.weights = Bytes(parts.integer("weights"));
    worker.gradients = Bytes(parts.integer("gradients"));
    worker.optimizer = Bytes(parts.integer("optimizer"));
    worker.versions = Bytes(parts.integer("versions"));
    worker.saved = Bytes(parts.integer("saved"));
  });
  worker.peak_in_flight = static_cast<int>(reader.integer("peak_in_flight", count));
  worker.peak_versions = static_cast<int>(reader.integer("peak_versions", count));
  worker.sent_per_step = Bytes(reader.integer("sent_bytes_per_step"));
  worker.swaps_in = read_swaps(reader, "swaps_in");
  worker.swaps_out = read_swaps(reader, "swaps_out");
  worker.graphs = read_graphs(reader);
  return worker;
}

OpTime read_op_time(ObjectReader& reader, const plan::Plan& plan) {
  OpTime row;
  row.kind = reader.enumerator<plan::OpKind>("kind");
  row.stage = read_stage_id(reader, "stage", plan.stages.size());
  row.count = reader.integer("count");
  row.predicted = Seconds(reader.number("predicted_s", kTimes));
  row.median = Seconds(reader.number("median_s", kTimes));
  if (!reader.has("replica_medians_s")) return row;
  for (const double replica : reader.numbers("replica_medians_s", kTimes)) row.replicas.emplace_back(replica);
  return row;
}

Comparison read_comparison(ObjectReader& reader) {
  Comparison row;
  row.name = reader.text("name");
  row.predicted = reader.number("predicted", kAnyNumber);
  row.measured = reader.number("measured", kAnyNumber);
  row.ratio = reader.number("ratio", kAnyNumber);
  return row;
}

// What is drawn of a report is looked up in its plan.
plan::Plan read_plan(ObjectReader& reader) {
  const Json& json = reader.raw("plan");
  return with_context(reader.pointer() + "/plan", [&] {
    plan::Plan plan = plan::plan_from_json(json);
    plan::check_plan(plan);
    return plan;
  });
}

std::vector<double> read_losses(ObjectReader& reader) {
  std::vector<double> losses;
  const Json& json = reader.raw("step_losses");
  if (!json.is_array()) reader.fail("step_losses", "must be an array of numbers");
  for (const Json& value : json) {
    if (!value.is_number() && !value.is_null()) reader.fail("step_losses", "must be an array of numbers");
    losses.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  }
  return losses;
}

}  // namespace

Json loss_json(double loss) { return std::isfinite(loss) ? Json(loss) : Json(); }

Json to_json(const RunReport& report) {
  Json losses = Json::array();
  for (const double loss : report.step_losses) losses.push_back(loss_json(loss));
  Json json{{"format", kReportFormat},
            {"version", kReportVersion},
            {"context", context_json(report.context)},
            {"plan_hash", report.plan_hash},
            {"plan", plan::to_json(report.plan)},
            {"settings", to_json(report.settings)},
            {"exit_reason", report.exit_reason},
            {"seed", report.seed},
            {"steps", report.steps},
            {"skipped_steps", report.skipped_steps},
            {"step_s", report.step.count()},
            {"samples_per_s", report.samples_per_s},
            {"bubble_fraction", report.bubble_fraction},
            {"epochs", write_all(report.epochs)},
            {"workers", write_all(report.workers)},
            {"op_times", write_all(report.op_times)},
            {"comparisons", write_all(report.comparisons)},
            {"step_losses", std::move(losses)},
            {"history", to_json(report.history)},
            {"last_steps", to_json(report.last_steps)}};
  if (!report.evaluations.empty()) json["evaluations"] = write_all(report.evaluations);
  if (report.best) json["best"] = write(*report.best);
  if (report.resumed)
    json["resumed_from"] = {{"checkpoint", report.resumed->checkpoint}, {"step", report.resumed->step}};
  if (!report.lost_attempts.empty()) json["lost_attempts"] = write_all(report.lost_attempts);
  if (!report.slow_devices.empty()) json["slow_devices"] = write_all(report.slow_devices);
  if (report.deviation) json["deviation"] = to_json(*report.deviation);
  if (report.checkpoints) json["checkpoints"] = write(*report.checkpoints);
  if (report.frames) json["frames"] = write(*report.frames);
  if (report.replicas) json["replicas"] = write(*report.replicas);
  return json;
}

RunReport report_from_json(const Json& json) {
  RunReport report;
  read_document(json, kReportFormat, kReportVersion, [&](ObjectReader& reader) {
    report.context = read_context(reader);
    report.plan_hash = reader.text("plan_hash");
    report.plan = read_plan(reader);
    report.settings = read_settings(reader, "settings");
    report.exit_reason = reader.text("exit_reason");
    report.seed = read_seed(reader, "seed");
    report.steps = reader.integer("steps");
    report.skipped_steps = reader.integer("skipped_steps");
    report.step = Seconds(reader.number("step_s", kTimes));
    report.samples_per_s = reader.number("samples_per_s");
    report.bubble_fraction = reader.number("bubble_fraction", {0, 1});
    reader.objects("epochs", [&](ObjectReader& epoch) { report.epochs.push_back(read_epoch(epoch)); });
    if (reader.has("evaluations")) {
      reader.objects("evaluations",
                     [&](ObjectReader& member) { report.evaluations.push_back(read_evaluation(member)); });
    }
    if (reader.has("best"))
      reader.object("best", [&](ObjectReader& member) { report.best = read_best(member); });
    const std::size_t workers = report.plan.workers.size();
    reader.objects("workers",
                   [&](ObjectReader& worker) { report.workers.push_back(read_worker(worker, workers)); });
    if (report.workers.size() != workers)
      reader.fail("workers", "must be " + std::to_string(workers) + " as in the plan, found " +
                                 std::to_string(report.workers.size()));
    reader.objects("op_times",
                   [&](ObjectReader& row) { report.op_times.push_back(read_op_time(row, report.plan)); });
    reader.objects("comparisons",
                   [&](ObjectReader& row) { report.comparisons.push_back(read_comparison(row)); });
    report.step_losses = read_losses(reader);
    reader.object("history", [&](ObjectReader& history) { report.history = read_history(history, workers); });
    reader.object("last_steps",
                  [&](ObjectReader& last) { report.last_steps = read_last_steps(last, report.plan); });
    if (reader.has("resumed_from")) {
      reader.object("resumed_from", [&](ObjectReader& from) {
        report.resumed = ResumedFrom{from.text("checkpoint"), from.integer("step")};
      });
    }
    if (reader.has("lost_attempts")) {
      reader.objects("lost_attempts",
                     [&](ObjectReader& row) { report.lost_attempts.push_back(read_lost_attempt(row)); });
    }
    if (reader.has("slow_devices")) {
      reader.objects("slow_devices",
                     [&](ObjectReader& row) { report.slow_devices.push_back(read_slow_device(row, workers)); });
    }
    if (reader.has("deviation"))
      reader.object("deviation", [&](ObjectReader& member) { report.deviation = read_deviation(member); });
    if (reader.has("frames")) {
      reader.object("frames", [&](ObjectReader& member) {
        report.frames = FramesReport{Seconds(member.number("period_s", kTimes)),
                                     Seconds(member.number("latency_s", kTimes)), member.integer("delay")};
      });
    }
    if (reader.has("replicas")) {
      reader.object("replicas", [&](ObjectReader& member) {
        report.replicas =
            ReplicasReport{member.number("mean_staleness"), member.integer("largest_staleness"),
                           member.integer("largest_lead"), Bytes(member.integer("pushed_bytes_per_step")),
                           Bytes(member.integer("fetched_bytes_per_step"))};
      });
    }
    if (reader.has("checkpoints")) {
      reader.object("checkpoints", [&](ObjectReader& member) {
        report.checkpoints = CheckpointsReport{member.integer("written"),
                                               Bytes(member.integer("size_bytes")),
                                               Seconds(member.number("pause_s")),
                                               Seconds(member.number("write_s")),
                                               {}};
        if (!member.has("interval_s")) return;
        report.checkpoints->choice =
            CheckpointChoice{Seconds(member.number("cost_s")), Seconds(member.number("interval_s"))};
      });
    }
  });
  return report;
}

}  // namespace pp::run
