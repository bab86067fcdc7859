// The keys of pp.plan.
#include <nlohmann/json.hpp>

#include "libplan/plan/plan.h"
#include "libplan/plan/prediction_json.h"
#include "libprofile/core/context.h"

namespace pp::plan {

namespace {

constexpr std::string_view kFormat = "pp.plan";
constexpr int kVersion = 1;

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

/// A description that knows one value: no micro-batch is split over replicas.
constexpr std::string_view kReplicaRouting = "round_robin";

Training read_training(ObjectReader& reader) {
  Training training;
  training.mini_batch = small_integer(reader, "mini_batch", 1);
  training.micro_batches = small_integer(reader, "micro_batches", 1);
  training.dtype = weight_type_from_json(reader);
  training.products = products_from_json(reader, training.dtype);
  training.memory_format = memory_format_from_json(reader);
  training.autocast = autocast_from_json(reader, training.dtype);
  training.optimizer = reader.enumerator<OptimizerName>("optimizer");
  if (reader.has("precision")) training.precision = reader.enumerator<Precision>("precision");
  if (reader.has("shard")) training.shard = reader.enumerator<Shard>("shard");
  training.kernels = kernels_from_json(reader);
  if (reader.has("replica_routing") && reader.text("replica_routing") != kReplicaRouting) {
    reader.fail("replica_routing", "is \"" + reader.text("replica_routing") +
                                       "\"; replicas take turns, write \"" + std::string(kReplicaRouting) +
                                       "\" or leave it out");
  }
  return training;
}

Json to_json(const Training& training) {
  Json json{{"mini_batch", training.mini_batch},
            {"micro_batches", training.micro_batches},
            {"dtype", name_of(training.dtype)},
            {"optimizer", name_of(training.optimizer)},
            {"replica_routing", kReplicaRouting}};
  if (training.precision != Precision::plain) json["precision"] = name_of(training.precision);
  if (training.shard != Shard::none) json["shard"] = name_of(training.shard);
  add_products(json, training.products);
  add_memory_format(json, training.memory_format);
  add_autocast(json, training.autocast);
  add_kernels(json, training.kernels);
  return json;
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
  if (reader.has("tensor_degree")) alternative.tensor_degree = small_integer(reader, "tensor_degree", 1);
  if (reader.has("context_degree")) alternative.context_degree = small_integer(reader, "context_degree", 1);
  if (reader.has("expert_degree")) alternative.expert_degree = small_integer(reader, "expert_degree", 1);
  return alternative;
}

Json to_json(const Alternative& alternative) {
  Json json{{"schedule", alternative.schedule},   {"stages", alternative.stages},
            {"replicas", alternative.replicas},   {"micro_batches", alternative.micro_batches},
            {"step_s", alternative.step.count()}, {"peak_bytes", alternative.peak.value},
            {"recompute", alternative.recompute}, {"why_not", alternative.why_not}};
  if (alternative.expected_step) json["expected_step_s"] = alternative.expected_step->count();
  if (alternative.cores_per_device > 0) json["cores_per_device"] = alternative.cores_per_device;
  if (alternative.tensor_degree > 0) json["tensor_degree"] = alternative.tensor_degree;
  if (alternative.context_degree > 0) json["context_degree"] = alternative.context_degree;
  if (alternative.expert_degree > 0) json["expert_degree"] = alternative.expert_degree;
  return json;
}

Machine read_machine(ObjectReader& reader) {
  Machine machine;
  machine.devices = small_integer(reader, "devices", 1);
  machine.cores_per_device = small_integer(reader, "cores_per_device");
  if (reader.has("tensor_degree")) machine.tensor_degree = small_integer(reader, "tensor_degree", 1);
  if (reader.has("context_degree")) machine.context_degree = small_integer(reader, "context_degree", 1);
  if (reader.has("expert_degree")) machine.expert_degree = small_integer(reader, "expert_degree", 1);
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
  if (machine.tensor_degree > 1) json["tensor_degree"] = machine.tensor_degree;
  if (machine.context_degree > 1) json["context_degree"] = machine.context_degree;
  if (machine.expert_degree > 1) json["expert_degree"] = machine.expert_degree;
  if (machine.step) json["step_s"] = machine.step->count();
  if (!machine.plan.empty()) json["plan"] = machine.plan;
  if (!machine.verdict.empty()) json["verdict"] = machine.verdict;
  return json;
}

/// Of anything with a to_json() above.
template <class T>
Json array_json(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(to_json(value));
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
  if (reader.has("tensor_degree")) plan.tensor_degree = small_integer(reader, "tensor_degree", 1);
  if (reader.has("context_degree")) plan.context_degree = small_integer(reader, "context_degree", 1);
  if (reader.has("expert_degree")) plan.expert_degree = small_integer(reader, "expert_degree", 1);
  if (reader.has("peak_flops_per_s"))
    plan.peak_flops_per_s = reader.number("peak_flops_per_s", {.min = 1e6, .max = 1e18});
  if (reader.has("throughput")) reader.raw("throughput");  // follows from the rest; printed for programs
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
  if (plan.tensor_degree > 1) json["tensor_degree"] = plan.tensor_degree;
  if (plan.context_degree > 1) json["context_degree"] = plan.context_degree;
  if (plan.expert_degree > 1) json["expert_degree"] = plan.expert_degree;
  if (plan.peak_flops_per_s) json["peak_flops_per_s"] = *plan.peak_flops_per_s;
  return json;
}

Plan parse_plan(std::string_view text) { return plan_from_json(parse_json(text)); }

}  // namespace pp::plan
