// The keys of pp.plan.
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/context_json.h"

namespace pp::plan {
namespace {

constexpr std::string_view kFormat = "pp.plan";
constexpr int kVersion = 1;
constexpr double kMostNumber = 1e30;  ///< sums of many stay numbers
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

int small_integer(ObjectReader& reader, std::string_view key, std::int64_t min = 0) {
  return static_cast<int>(reader.integer(key, {.min = min, .max = kMaxInt}));
}
Seconds seconds(ObjectReader& reader, std::string_view key) { return Seconds(reader.number(key)); }
Bytes bytes(ObjectReader& reader, std::string_view key) { return Bytes(reader.integer(key)); }

template <class Id>
std::vector<Id> ids(ObjectReader& reader, std::string_view key) {
  std::vector<Id> result;
  for (const std::int64_t id : reader.integers(key, {.max = kMaxInt}))
    result.push_back(Id{static_cast<int>(id)});
  return result;
}

template <class Id>
Json ids_json(const std::vector<Id>& ids) {
  Json json = Json::array();
  for (const Id id : ids) json.push_back(number(id));
  return json;
}

// --- training and schedule

Training read_training(ObjectReader& reader) {
  Training training;
  training.mini_batch = small_integer(reader, "mini_batch", 1);
  training.micro_batches = small_integer(reader, "micro_batches", 1);
  training.dtype = weight_type_from_json(reader);
  training.optimizer = reader.enumerator<OptimizerName>("optimizer");
  if (reader.has("replica_routing")) training.replica_routing = reader.text("replica_routing");
  return training;
}

Json to_json(const Training& training) {
  return {{"mini_batch", training.mini_batch},
          {"micro_batches", training.micro_batches},
          {"dtype", name_of(training.dtype)},
          {"optimizer", name_of(training.optimizer)},
          {"replica_routing", training.replica_routing}};
}

ScheduleInfo read_schedule(ObjectReader& reader) {
  ScheduleInfo schedule;
  schedule.name = reader.text("name");
  schedule.weight_policy = reader.enumerator<WeightPolicy>("weight_policy");
  if (reader.has("recompute")) schedule.recompute = reader.enumerator<RecomputePolicy>("recompute");
  if (reader.has("chunks_per_worker"))
    schedule.chunks_per_worker = small_integer(reader, "chunks_per_worker", 1);
  return schedule;
}

Json to_json(const ScheduleInfo& schedule) {
  return {{"name", schedule.name},
          {"weight_policy", name_of(schedule.weight_policy)},
          {"recompute", name_of(schedule.recompute)},
          {"chunks_per_worker", schedule.chunks_per_worker}};
}

// --- stages and workers

Stage read_stage(ObjectReader& reader) {
  Stage stage{reader.texts("layers"), ids<WorkerId>(reader, "workers"), {}};
  if (reader.has("recompute")) stage.recompute = reader.texts("recompute");
  return stage;
}

Json to_json(const Stage& stage) {
  return {{"layers", stage.layers}, {"workers", ids_json(stage.workers)}, {"recompute", stage.recompute}};
}

TiedParameter read_tied(ObjectReader& reader) {
  return {reader.text("parameter"), reader.texts("layers"), ids<StageId>(reader, "stages")};
}

Json to_json(const TiedParameter& tied) {
  return {{"parameter", tied.parameter}, {"layers", tied.layers}, {"stages", ids_json(tied.stages)}};
}

Program program(ObjectReader& reader, std::string_view key) {
  const std::string text = reader.text(key);
  return with_context(reader.pointer() + "/" + std::string(key), [&] { return parse_program(text); });
}

WorkerProgram read_program(ObjectReader& reader) {
  WorkerProgram result;
  if (reader.has("stream") == reader.has("program")) reader.fail("needs either \"program\" or \"stream\"");
  if (!reader.has("stream")) {
    result.program = program(reader, "program");
    return result;
  }
  reader.object("stream", [&](ObjectReader& member) {
    result.stream =
        Stream{program(member, "prologue"), program(member, "body"), small_integer(member, "period", 1)};
  });
  return result;
}

Worker read_worker(ObjectReader& reader) {
  Worker worker;
  worker.id = WorkerId{small_integer(reader, "id")};
  worker.device = DeviceId{small_integer(reader, "device")};
  if (reader.has("rank")) worker.rank = small_integer(reader, "rank");
  worker.program = read_program(reader);
  return worker;
}

Json to_json(const Worker& worker) {
  Json json{{"id", number(worker.id)}, {"device", number(worker.device)}, {"rank", worker.rank}};
  if (const auto& stream = worker.program.stream) {
    json["stream"] = {
        {"prologue", to_text(stream->prologue)}, {"body", to_text(stream->body)}, {"period", stream->period}};
  } else {
    json["program"] = to_text(worker.program.program);
  }
  return json;
}

// --- certificate and alternatives

Certificate read_certificate(ObjectReader& reader) {
  return {seconds(reader, "objective_s"), seconds(reader, "lower_bound_s"), reader.number("gap"),
          reader.text("search")};
}

Json to_json(const Certificate& certificate) {
  return {{"objective_s", certificate.objective.count()},
          {"lower_bound_s", certificate.lower_bound.count()},
          {"gap", certificate.gap},
          {"search", certificate.search}};
}

Alternative read_alternative(ObjectReader& reader) {
  Alternative alternative;
  alternative.schedule = reader.text("schedule");
  alternative.stages = reader.text("stages");
  alternative.replicas = reader.text("replicas");
  alternative.micro_batches = small_integer(reader, "micro_batches", 1);
  alternative.step = seconds(reader, "step_s");
  alternative.peak = bytes(reader, "peak_bytes");
  if (reader.has("recompute")) alternative.recompute = reader.text("recompute");
  alternative.why_not = reader.text("why_not");
  if (reader.has("expected_step_s")) alternative.expected_step = seconds(reader, "expected_step_s");
  if (reader.has("cores_per_device"))
    alternative.cores_per_device = small_integer(reader, "cores_per_device", 1);
  return alternative;
}

Json to_json(const Alternative& alternative) {
  Json json{{"schedule", alternative.schedule},   {"stages", alternative.stages},
            {"replicas", alternative.replicas},   {"micro_batches", alternative.micro_batches},
            {"step_s", alternative.step.count()}, {"peak_bytes", alternative.peak.value},
            {"recompute", alternative.recompute}, {"why_not", alternative.why_not}};
  if (alternative.expected_step) json["expected_step_s"] = alternative.expected_step->count();
  if (alternative.cores_per_device > 0) json["cores_per_device"] = alternative.cores_per_device;
  return json;
}

Calibration read_calibration(ObjectReader& reader) {
  return {reader.texts("reports"), reader.number("least_factor"), reader.number("largest_factor")};
}

Json to_json(const Calibration& calibration) {
  return {{"reports", calibration.reports},
          {"least_factor", calibration.least},
          {"largest_factor", calibration.largest}};
}

Machine read_machine(ObjectReader& reader) {
  Machine machine;
  machine.devices = small_integer(reader, "devices", 1);
  machine.cores_per_device = small_integer(reader, "cores_per_device", 1);
  machine.profile_hash = reader.text("profile_hash");
  if (reader.has("step_s")) machine.step = seconds(reader, "step_s");
  if (reader.has("plan")) machine.plan = reader.text("plan");
  if (reader.has("verdict")) machine.verdict = reader.text("verdict");
  return machine;
}

Json to_json(const Machine& machine) {
  Json json{{"devices", machine.devices},
            {"cores_per_device", machine.cores_per_device},
            {"profile_hash", machine.profile_hash}};
  if (machine.step) json["step_s"] = machine.step->count();
  if (!machine.plan.empty()) json["plan"] = machine.plan;
  if (!machine.verdict.empty()) json["verdict"] = machine.verdict;
  return json;
}

// --- prediction

WorkerPrediction read_worker_prediction(ObjectReader& reader) {
  WorkerPrediction worker;
  worker.busy = seconds(reader, "busy_s");
  worker.memory.peak = bytes(reader, "peak_bytes");
  reader.object("parts", [&](ObjectReader& parts) {
    MemoryPeak& memory = worker.memory;
    memory.weights = bytes(parts, "weights");
    memory.gradients = bytes(parts, "gradients");
    memory.optimizer = bytes(parts, "optimizer");
    memory.versions = bytes(parts, "versions");
    memory.saved = bytes(parts, "saved");
    memory.boundary = bytes(parts, "boundary");
    memory.workspace = bytes(parts, "workspace");
  });
  return worker;
}

Json to_json(const WorkerPrediction& worker) {
  const MemoryPeak& memory = worker.memory;
  return {{"busy_s", worker.busy.count()},
          {"peak_bytes", memory.peak.value},
          {"parts",
           {{"weights", memory.weights.value},
            {"gradients", memory.gradients.value},
            {"optimizer", memory.optimizer.value},
            {"versions", memory.versions.value},
            {"saved", memory.saved.value},
            {"boundary", memory.boundary.value},
            {"workspace", memory.workspace.value}}}};
}

LinkPrediction read_link(ObjectReader& reader) {
  return {WorkerId{small_integer(reader, "from")}, WorkerId{small_integer(reader, "to")},
          bytes(reader, "bytes_per_step")};
}

Json to_json(const LinkPrediction& link) {
  return {{"from", number(link.from)}, {"to", number(link.to)}, {"bytes_per_step", link.bytes_per_step.value}};
}

std::vector<double> read_scales(ObjectReader& reader, std::string_view key) {
  const Json& json = reader.raw(key);
  std::vector<double> scales;
  if (!json.is_array()) reader.fail(key, "must be an array of numbers");
  for (const Json& item : json) {
    const bool fits = item.is_number() && item.get<double>() > 0 && item.get<double>() <= kMostNumber;
    if (!fits)
      reader.fail(key, "entry " + std::to_string(scales.size()) + " must be a number above 0, to 1e30");
    scales.push_back(item.get<double>());
  }
  return scales;
}

std::vector<Seconds> read_durations(ObjectReader& reader, std::string_view key) {
  std::vector<Seconds> durations;
  if (!reader.has(key)) return durations;
  const Json& json = reader.raw(key);
  if (!json.is_array()) reader.fail(key, "must be an array of numbers");
  for (const Json& item : json) {
    if (!item.is_number() || item.get<double>() < 0 || item.get<double>() > kMostNumber) {
      reader.fail(key, "entry " + std::to_string(durations.size()) + " must be a number of seconds, 0 to 1e30");
    }
    durations.emplace_back(item.get<double>());
  }
  return durations;
}

struct NamedSpread {
  std::string_view key;
  Spread StageSpread::*member;
};
constexpr std::array kSpreads{NamedSpread{"forward", &StageSpread::forward},
                              NamedSpread{"backward", &StageSpread::backward},
                              NamedSpread{"input_gradient", &StageSpread::input_gradient},
                              NamedSpread{"weight_gradient", &StageSpread::weight_gradient},
                              NamedSpread{"recompute", &StageSpread::recompute},
                              NamedSpread{"update", &StageSpread::update}};

StageSpread read_spread(ObjectReader& reader) {
  StageSpread spread;
  for (const auto& [key, member] : kSpreads) {
    reader.object(key, [&](ObjectReader& of) {
      const Seconds shift(of.number("shift_s", {.min = -kMostNumber, .max = kMostNumber}));
      spread.*member = {seconds(of, "below_s"), seconds(of, "above_s"), shift};
    });
  }
  return spread;
}

Json to_json(const StageSpread& spread) {
  Json json;
  for (const auto& [key, member] : kSpreads) {
    const Spread& of = spread.*member;
    json[std::string(key)] = {
        {"below_s", of.below.count()}, {"above_s", of.above.count()}, {"shift_s", of.shift.count()}};
  }
  return json;
}

StageCosts read_costs(ObjectReader& reader) {
  StageCosts costs;
  costs.forward = seconds(reader, "forward_s");
  costs.backward = seconds(reader, "backward_s");
  costs.input_gradient = seconds(reader, "input_gradient_s");
  costs.weight_gradient = seconds(reader, "weight_gradient_s");
  costs.recompute = seconds(reader, "recompute_s");
  costs.all_reduce = seconds(reader, "all_reduce_s");
  if (reader.has("hideable_s")) costs.hideable = seconds(reader, "hideable_s");
  costs.update = seconds(reader, "update_s");
  costs.weights = bytes(reader, "weights_bytes");
  costs.gradients = bytes(reader, "gradients_bytes");
  costs.optimizer = bytes(reader, "optimizer_bytes");
  costs.saved = bytes(reader, "saved_bytes");
  if (reader.has("again_bytes")) costs.again = bytes(reader, "again_bytes");
  if (reader.has("again_split_bytes")) costs.again_split = bytes(reader, "again_split_bytes");
  costs.input = bytes(reader, "input_bytes");
  if (reader.has("waiting_bytes")) costs.waiting = bytes(reader, "waiting_bytes");
  costs.boundary = bytes(reader, "boundary_bytes");
  costs.workspace = bytes(reader, "workspace_bytes");
  costs.versions = small_integer(reader, "versions", 1);
  if (reader.has("spread"))
    reader.object("spread", [&](ObjectReader& member) { costs.spread = read_spread(member); });
  return costs;
}

Json to_json(const StageCosts& costs) {
  Json json{{"forward_s", costs.forward.count()},
            {"backward_s", costs.backward.count()},
            {"input_gradient_s", costs.input_gradient.count()},
            {"weight_gradient_s", costs.weight_gradient.count()},
            {"recompute_s", costs.recompute.count()},
            {"all_reduce_s", costs.all_reduce.count()},
            {"update_s", costs.update.count()},
            {"weights_bytes", costs.weights.value},
            {"gradients_bytes", costs.gradients.value},
            {"optimizer_bytes", costs.optimizer.value},
            {"saved_bytes", costs.saved.value},
            {"again_bytes", costs.again.value},
            {"again_split_bytes", costs.again_split.value},
            {"input_bytes", costs.input.value},
            {"boundary_bytes", costs.boundary.value},
            {"workspace_bytes", costs.workspace.value},
            {"versions", costs.versions}};
  if (costs.waiting) json["waiting_bytes"] = costs.waiting->value;
  if (costs.hideable) json["hideable_s"] = costs.hideable->count();
  if (costs.spread) json["spread"] = to_json(*costs.spread);
  return json;
}

StageEdge read_edge(ObjectReader& reader) {
  return {StageId{small_integer(reader, "from")},      StageId{small_integer(reader, "to")},
          bytes(reader, "activation_bytes"),           bytes(reader, "gradient_bytes"),
          small_integer(reader, "activation_tensors"), small_integer(reader, "gradient_tensors")};
}

Json to_json(const StageEdge& edge) {
  return {{"from", number(edge.from)},
          {"to", number(edge.to)},
          {"activation_bytes", edge.activation.value},
          {"gradient_bytes", edge.gradient.value},
          {"activation_tensors", edge.activation_tensors},
          {"gradient_tensors", edge.gradient_tensors}};
}

/// Of anything with a to_json() above.
template <class T>
Json array_json(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(to_json(value));
  return json;
}

Prediction read_prediction(ObjectReader& reader) {
  Prediction prediction;
  prediction.step = seconds(reader, "step_s");
  if (reader.has("expected_step_s")) prediction.expected_step = seconds(reader, "expected_step_s");
  prediction.makespan = seconds(reader, "makespan_s");
  prediction.samples_per_s = reader.number("samples_per_s");
  prediction.bubble_fraction = reader.number("bubble_fraction", {.max = 1});
  reader.objects("workers", [&](ObjectReader& m) { prediction.workers.push_back(read_worker_prediction(m)); });
  reader.objects("links", [&](ObjectReader& m) { prediction.links.push_back(read_link(m)); });
  reader.objects("stages", [&](ObjectReader& m) { prediction.stages.push_back(read_costs(m)); });
  reader.objects("edges", [&](ObjectReader& m) { prediction.edges.push_back(read_edge(m)); });
  prediction.tied_all_reduce = read_durations(reader, "tied_all_reduce_s");
  prediction.micro_batch_scale = read_scales(reader, "micro_batch_scale");
  prediction.all_reduce_overlap = reader.number("all_reduce_overlap", {.max = 1});
  return prediction;
}

Json to_json(const Prediction& prediction) {
  Json json{{"step_s", prediction.step.count()}};
  if (prediction.expected_step) json["expected_step_s"] = prediction.expected_step->count();
  json["makespan_s"] = prediction.makespan.count();
  json["samples_per_s"] = prediction.samples_per_s;
  json["bubble_fraction"] = prediction.bubble_fraction;
  json["workers"] = array_json(prediction.workers);
  json["links"] = array_json(prediction.links);
  json["stages"] = array_json(prediction.stages);
  json["edges"] = array_json(prediction.edges);
  json["micro_batch_scale"] = prediction.micro_batch_scale;
  json["all_reduce_overlap"] = prediction.all_reduce_overlap;
  for (const Seconds time : prediction.tied_all_reduce) json["tied_all_reduce_s"].push_back(time.count());
  return json;
}

Plan read_plan(ObjectReader& reader) {
  Plan plan;
  plan.context = read_context(reader);
  plan.model = model_from_json(reader.raw("model"), reader.pointer() + "/model");
  if (reader.has("profile_hash")) plan.profile_hash = reader.text("profile_hash");
  if (reader.has("cluster_hash")) plan.cluster_hash = reader.text("cluster_hash");
  reader.object("training", [&](ObjectReader& m) { plan.training = read_training(m); });
  reader.object("schedule", [&](ObjectReader& m) { plan.schedule = read_schedule(m); });
  reader.objects("devices", [&](ObjectReader& m) { plan.devices.push_back(device_from_json(m)); });
  if (reader.has("levels")) {
    reader.objects("levels", [&](ObjectReader& m) { plan.levels.push_back(level_from_json(m)); });
  }
  reader.objects("stages", [&](ObjectReader& m) { plan.stages.push_back(read_stage(m)); });
  if (reader.has("tied")) reader.objects("tied", [&](ObjectReader& m) { plan.tied.push_back(read_tied(m)); });
  reader.objects("workers", [&](ObjectReader& m) { plan.workers.push_back(read_worker(m)); });
  if (reader.has("predicted")) {
    reader.object("predicted", [&](ObjectReader& m) { plan.predicted = read_prediction(m); });
  }
  if (reader.has("certificate")) {
    reader.object("certificate", [&](ObjectReader& m) { plan.certificate = read_certificate(m); });
  }
  if (reader.has("alternatives")) {
    reader.objects("alternatives", [&](ObjectReader& m) { plan.alternatives.push_back(read_alternative(m)); });
  }
  if (reader.has("calibration"))
    reader.object("calibration", [&](ObjectReader& m) { plan.calibration = read_calibration(m); });
  if (reader.has("machines"))
    reader.objects("machines", [&](ObjectReader& m) { plan.machines.push_back(read_machine(m)); });
  return plan;
}

}  // namespace

Plan plan_from_json(const Json& json) {
  Plan plan;
  read_document(json, kFormat, kVersion, [&](ObjectReader& reader) { plan = read_plan(reader); });
  return plan;
}

Json to_json(const Plan& plan) {
  Json json{{"format", kFormat}, {"version", kVersion}};
  json["context"] = context_json(plan.context);
  json["model"] = to_json(plan.model);
  json["profile_hash"] = plan.profile_hash;
  json["cluster_hash"] = plan.cluster_hash;
  json["training"] = to_json(plan.training);
  json["schedule"] = to_json(plan.schedule);
  json["devices"] = array_json(plan.devices);
  json["levels"] = array_json(plan.levels);
  json["stages"] = array_json(plan.stages);
  json["tied"] = array_json(plan.tied);
  json["workers"] = array_json(plan.workers);
  json["predicted"] = to_json(plan.predicted);
  json["certificate"] = to_json(plan.certificate);
  json["alternatives"] = array_json(plan.alternatives);
  if (plan.calibration) json["calibration"] = to_json(*plan.calibration);
  if (!plan.machines.empty()) json["machines"] = array_json(plan.machines);
  return json;
}

Plan parse_plan(std::string_view text) { return plan_from_json(parse_json(text)); }

}  // namespace pp::plan
