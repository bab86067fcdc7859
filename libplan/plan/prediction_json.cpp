#include "libplan/plan/prediction_json.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

namespace pp::plan {

namespace {

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
  if (!reader.has(key)) return {};
  std::vector<Seconds> durations;
  for (const double seconds : reader.numbers(key, {.max = kMostNumber})) durations.emplace_back(seconds);
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
  if (reader.has("first")) {
    reader.object("first", [&](ObjectReader& member) {
      costs.first = {seconds(member, "forward_s"), seconds(member, "backward_s"),
                     seconds(member, "weight_gradient_s")};
    });
  }
  costs.all_reduce = seconds(reader, "all_reduce_s");
  if (reader.has("hideable_s")) costs.hideable = seconds(reader, "hideable_s");
  if (reader.has("load_s")) costs.load = seconds(reader, "load_s");
  if (reader.has("load_state_s")) costs.load_state = seconds(reader, "load_state_s");
  if (reader.has("evict_s")) costs.evict = seconds(reader, "evict_s");
  costs.update = seconds(reader, "update_s");
  costs.weights = bytes(reader, "weights_bytes");
  if (reader.has("frozen_bytes"))
    costs.frozen = Bytes(reader.integer("frozen_bytes", {.max = costs.weights.value}));
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
  if (costs.frozen > Bytes(0)) json["frozen_bytes"] = costs.frozen.value;
  if (costs.first) {
    json["first"] = {{"forward_s", costs.first->forward.count()},
                     {"backward_s", costs.first->backward.count()},
                     {"weight_gradient_s", costs.first->weight_gradient.count()}};
  }
  if (costs.waiting) json["waiting_bytes"] = costs.waiting->value;
  if (costs.hideable) json["hideable_s"] = costs.hideable->count();
  if (costs.spread) json["spread"] = to_json(*costs.spread);
  const auto swap = [&](const char* key, Seconds time) {
    if (time > Seconds{}) json[key] = time.count();
  };
  swap("load_s", costs.load);
  swap("load_state_s", costs.load_state);
  swap("evict_s", costs.evict);
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
Json shares_json(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(to_json(value));
  return json;
}

constexpr NumberRange kFactors{.min = 1e-6, .max = 1e6};

LayerCorrection read_correction(ObjectReader& reader) {
  LayerCorrection correction;
  if (reader.has("layer")) correction.layer = reader.text("layer");
  correction.forward = reader.number("forward", kFactors);
  correction.backward = reader.number("backward", kFactors);
  correction.input_gradient = reader.number("input_gradient", kFactors);
  correction.weight_gradient = reader.number("weight_gradient", kFactors);
  return correction;
}

Json to_json(const LayerCorrection& correction) {
  Json json{{"forward", correction.forward},
            {"backward", correction.backward},
            {"input_gradient", correction.input_gradient},
            {"weight_gradient", correction.weight_gradient}};
  if (!correction.layer.empty()) json["layer"] = correction.layer;
  return json;
}

Json to_json(const UpdateCorrection& update) {
  return {{"optimizer", update.optimizer}, {"factor", update.factor}};
}

Json to_json(const MeasuredSpeed& device) {
  return {{"device", number(device.device)}, {"node", device.node}, {"speed", device.speed}};
}

template <class T>
Json all_json(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(to_json(value));
  return json;
}

}  // namespace

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
  if (reader.has("micro_batch_bytes")) prediction.micro_batch_bytes = read_scales(reader, "micro_batch_bytes");
  prediction.all_reduce_overlap = reader.number("all_reduce_overlap", {.max = 1});
  if (reader.has("swap_bandwidth")) {
    prediction.swap.bandwidth = BytesPerSecond(reader.number("swap_bandwidth"));
    prediction.swap.overlap = reader.number("swap_overlap", {.max = 1});
  }
  return prediction;
}

Json to_json(const Prediction& prediction) {
  Json json{{"step_s", prediction.step.count()}};
  if (prediction.expected_step) json["expected_step_s"] = prediction.expected_step->count();
  json["makespan_s"] = prediction.makespan.count();
  json["samples_per_s"] = prediction.samples_per_s;
  json["bubble_fraction"] = prediction.bubble_fraction;
  json["workers"] = shares_json(prediction.workers);
  json["links"] = shares_json(prediction.links);
  json["stages"] = shares_json(prediction.stages);
  json["edges"] = shares_json(prediction.edges);
  json["micro_batch_scale"] = prediction.micro_batch_scale;
  if (!prediction.micro_batch_bytes.empty()) json["micro_batch_bytes"] = prediction.micro_batch_bytes;
  json["all_reduce_overlap"] = prediction.all_reduce_overlap;
  if (prediction.swap.bandwidth.value > 0) {
    json["swap_bandwidth"] = prediction.swap.bandwidth.value;
    json["swap_overlap"] = prediction.swap.overlap;
  }
  for (const Seconds time : prediction.tied_all_reduce) json["tied_all_reduce_s"].push_back(time.count());
  return json;
}

Calibration read_calibration(ObjectReader& reader) {
  Calibration calibration{reader.texts("reports"), reader.number("least_factor"),
                          reader.number("largest_factor")};
  if (reader.has("layers"))
    reader.objects("layers", [&](ObjectReader& m) { calibration.layers.push_back(read_correction(m)); });
  if (reader.has("loss"))
    reader.object("loss", [&](ObjectReader& m) { calibration.loss = read_correction(m); });
  if (reader.has("updates")) {
    reader.objects("updates", [&](ObjectReader& m) {
      calibration.updates.push_back({m.text("optimizer"), m.number("factor", kFactors)});
    });
  }
  if (reader.has("devices")) {
    reader.objects("devices", [&](ObjectReader& m) {
      calibration.devices.push_back(
          {DeviceId{small_integer(m, "device")}, m.text("node"), m.number("speed", kFactors)});
    });
  }
  return calibration;
}

Json to_json(const Calibration& calibration) {
  Json json{{"reports", calibration.reports},
            {"least_factor", calibration.least},
            {"largest_factor", calibration.largest}};
  if (!calibration.layers.empty()) json["layers"] = all_json(calibration.layers);
  if (calibration.loss) json["loss"] = to_json(*calibration.loss);
  if (!calibration.updates.empty()) json["updates"] = all_json(calibration.updates);
  if (!calibration.devices.empty()) json["devices"] = all_json(calibration.devices);
  return json;
}

}  // namespace pp::plan
