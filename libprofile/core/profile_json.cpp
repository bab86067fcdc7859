// The keys of pp.profile.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/context.h"
#include "libprofile/core/profile.h"
#include "libprofile/core/shared_fields.h"

namespace pp {
namespace {

constexpr std::string_view kProfileFormat = "pp.profile";
constexpr int kProfileVersion = 1;
constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

TimeStat read_time(ObjectReader& reader, std::string_view key) {
  TimeStat time;
  reader.object(key, [&](ObjectReader& member) { time = time_stat_from_json(member); });
  return time;
}

std::optional<TimeStat> read_optional_time(ObjectReader& reader, std::string_view key) {
  if (!reader.has(key)) return std::nullopt;
  return read_time(reader, key);
}

std::optional<Seconds> read_optional_seconds(ObjectReader& reader, std::string_view key) {
  if (!reader.has(key)) return std::nullopt;
  return Seconds(reader.number(key));
}

/// Older documents have the median alone, as a number.
TimeStat read_time_or_median(ObjectReader& reader, std::string_view key) {
  if (!reader.has(key) || reader.raw(key).is_object()) return read_time(reader, key);
  return {.median = Seconds(reader.number(key))};
}

/// A time without samples stays the number that it was read from.
Json time_or_median_json(const TimeStat& time) {
  return time.samples > 0 ? to_json(time) : Json(time.median.count());
}

std::optional<LayerTimes> read_optional_times(ObjectReader& reader, std::string_view key) {
  if (!reader.has(key)) return std::nullopt;
  LayerTimes times;
  reader.object(key, [&](ObjectReader& member) {
    times = {read_time_or_median(member, "forward_s"), read_time_or_median(member, "backward_s"),
             read_time_or_median(member, "input_gradient_s"), read_time_or_median(member, "weight_gradient_s")};
  });
  return times;
}

Json times_json(const LayerTimes& times) {
  return {{"forward_s", time_or_median_json(times.forward)},
          {"backward_s", time_or_median_json(times.backward)},
          {"input_gradient_s", time_or_median_json(times.input_gradient)},
          {"weight_gradient_s", time_or_median_json(times.weight_gradient)}};
}

/// Samples of a micro-batch.
constexpr IntegerRange kSizes{.min = 1, .max = kMaxInt};
std::int64_t read_size(ObjectReader& reader) { return reader.integer("micro_batch_size", kSizes); }

LayerPoint read_point(ObjectReader& reader) {
  LayerPoint point;
  point.micro_batch_size = read_size(reader);
  if (reader.has("out_of_memory")) point.out_of_memory = reader.boolean("out_of_memory");
  if (point.out_of_memory) return point;
  point.forward = read_time(reader, "forward_s");
  point.backward = read_time(reader, "backward_s");
  point.input_gradient = read_optional_time(reader, "input_gradient_s");
  point.weight_gradient = read_optional_time(reader, "weight_gradient_s");
  point.first = read_optional_times(reader, "first");
  point.alone = read_optional_times(reader, "alone");
  point.in_part = read_optional_times(reader, "in_part");
  point.output = Bytes(reader.integer("output_bytes"));
  point.saved = Bytes(reader.integer("saved_bytes"));
  point.saved_input = Bytes(reader.integer("saved_input_bytes", {.max = point.saved.value}));
  point.workspace = Bytes(reader.integer("workspace_bytes"));
  if (reader.has("waiting_bytes")) point.waiting = Bytes(reader.integer("waiting_bytes"));
  point.transfer = read_optional_seconds(reader, "transfer_s");
  point.gradient_transfer = read_optional_seconds(reader, "gradient_transfer_s");
  return point;
}

Json point_json(const LayerPoint& point) {
  Json json{{"micro_batch_size", point.micro_batch_size}};
  if (point.out_of_memory) {
    json["out_of_memory"] = true;
    return json;
  }
  json["forward_s"] = to_json(point.forward);
  json["backward_s"] = to_json(point.backward);
  if (point.input_gradient) json["input_gradient_s"] = to_json(*point.input_gradient);
  if (point.weight_gradient) json["weight_gradient_s"] = to_json(*point.weight_gradient);
  if (point.first) json["first"] = times_json(*point.first);
  if (point.alone) json["alone"] = times_json(*point.alone);
  if (point.in_part) json["in_part"] = times_json(*point.in_part);
  json["output_bytes"] = point.output.value;
  json["saved_bytes"] = point.saved.value;
  json["saved_input_bytes"] = point.saved_input.value;
  json["workspace_bytes"] = point.workspace.value;
  if (point.waiting) json["waiting_bytes"] = point.waiting->value;
  if (point.transfer) json["transfer_s"] = point.transfer->count();
  if (point.gradient_transfer) json["gradient_transfer_s"] = point.gradient_transfer->count();
  return json;
}

PiperVariant read_variant(ObjectReader& reader) {
  return {Seconds(reader.number("time_s")), Bytes(reader.integer("saved_bytes")),
          Bytes(reader.integer("fixed_bytes"))};
}

Json variant_json(const PiperVariant& variant) {
  return {{"time_s", variant.time.count()},
          {"saved_bytes", variant.saved.value},
          {"fixed_bytes", variant.fixed.value}};
}

std::map<std::string, Bytes> read_edges(ObjectReader& reader, std::string_view key) {
  std::map<std::string, Bytes> edges;
  reader.objects(key,
                 [&](ObjectReader& member) { edges[member.text("layer")] = Bytes(member.integer("bytes")); });
  return edges;
}

Json edges_json(const std::map<std::string, Bytes>& edges) {
  Json json = Json::array();
  for (const auto& [name, bytes] : edges) json.push_back({{"layer", name}, {"bytes", bytes.value}});
  return json;
}

/// What PiperLayer and PiperShare have in common.
template <typename Costs>
void read_costs(ObjectReader& reader, Costs& costs) {
  reader.object("plain", [&](ObjectReader& member) { costs.plain = read_variant(member); });
  if (reader.has("recompute"))
    reader.object("recompute", [&](ObjectReader& member) { costs.recompute = read_variant(member); });
  costs.incoming = read_edges(reader, "incoming");
  if (reader.has("outgoing")) costs.outgoing = read_edges(reader, "outgoing");
}

template <typename Costs>
Json costs_json(const Costs& costs) {
  Json json{{"plain", variant_json(costs.plain)}};
  if (costs.recompute) json["recompute"] = variant_json(*costs.recompute);
  json["incoming"] = edges_json(costs.incoming);
  if (!costs.outgoing.empty()) json["outgoing"] = edges_json(costs.outgoing);
  return json;
}

PiperShare read_share(ObjectReader& reader, int least) {
  PiperShare share;
  share.degree = static_cast<int>(reader.integer("degree", {.min = least, .max = kMaxInt}));
  share.parameters = Bytes(reader.integer("parameter_bytes"));
  read_costs(reader, share);
  return share;
}

PiperLayer read_piper(ObjectReader& reader) {
  PiperLayer layer;
  read_costs(reader, layer);
  if (!reader.has("tensor")) return layer;
  reader.objects("tensor", [&](ObjectReader& member) {
    layer.tensor.push_back(read_share(member, layer.tensor.empty() ? 2 : layer.tensor.back().degree + 1));
  });
  return layer;
}

Json piper_json(const PiperLayer& layer) {
  Json json = costs_json(layer);
  for (const PiperShare& share : layer.tensor) {
    Json& member = json["tensor"].emplace_back(costs_json(share));
    member["degree"] = share.degree;
    member["parameter_bytes"] = share.parameters.value;
  }
  return json;
}

LayerProfile read_layer(ObjectReader& reader, const std::vector<std::int64_t>& sizes) {
  LayerProfile layer;
  layer.name = reader.text("name");
  layer.parameter_count = reader.integer("parameter_count");
  layer.parameters = Bytes(reader.integer("parameter_bytes"));
  if (reader.has("trained_parameter_bytes"))
    layer.trained = Bytes(reader.integer("trained_parameter_bytes", {.max = layer.parameters.value}));
  layer.buffers = Bytes(reader.integer("buffer_bytes"));
  layer.forward_flops_per_sample = Flops(reader.number("forward_flops_per_sample"));
  reader.objects("points", [&](ObjectReader& member) { layer.points.push_back(read_point(member)); });
  if (reader.has("piper"))
    reader.object("piper", [&](ObjectReader& member) { layer.piper = read_piper(member); });
  const auto same_size = [](const LayerPoint& point, std::int64_t size) {
    return point.micro_batch_size == size;
  };
  if (!std::equal(layer.points.begin(), layer.points.end(), sizes.begin(), sizes.end(), same_size)) {
    reader.fail("points",
                "must have one entry per size in /micro_batch_sizes, " + to_text(sizes) + ", in that order");
  }
  return layer;
}

Json layer_json(const LayerProfile& layer) {
  Json json{{"name", layer.name},
            {"parameter_count", layer.parameter_count},
            {"parameter_bytes", layer.parameters.value}};
  if (layer.trained) json["trained_parameter_bytes"] = layer.trained->value;
  json["buffer_bytes"] = layer.buffers.value;
  json["forward_flops_per_sample"] = layer.forward_flops_per_sample.value;
  json["points"] = Json::array();
  for (const LayerPoint& point : layer.points) json["points"].push_back(point_json(point));
  if (layer.piper) json["piper"] = piper_json(*layer.piper);
  return json;
}

ProfiledDevice read_device(ObjectReader& reader) {
  ProfiledDevice device;
  device.kind = reader.enumerator<DeviceKind>("kind");
  device.name = reader.text("name");
  device.cores_per_device = static_cast<int>(reader.integer("cores_per_device", {.max = kMaxInt}));
  device.devices_busy = static_cast<int>(reader.integer("devices_busy", {.min = 1, .max = kMaxInt}));
  device.memory = Bytes(reader.integer("memory_bytes"));
  if (reader.has("peak_flops_per_s"))
    device.peak_flops_per_s = reader.number("peak_flops_per_s", {.min = 1e6, .max = 1e18});
  return device;
}

Json device_json(const ProfiledDevice& device) {
  Json json{{"kind", name_of(device.kind)},
            {"name", device.name},
            {"cores_per_device", device.cores_per_device},
            {"devices_busy", device.devices_busy},
            {"memory_bytes", device.memory.value}};
  if (device.peak_flops_per_s) json["peak_flops_per_s"] = *device.peak_flops_per_s;
  return json;
}

WholeModelPoint read_whole(ObjectReader& reader) {
  WholeModelPoint point;
  point.micro_batch_size = read_size(reader);
  point.forward = read_time(reader, "forward_s");
  point.backward = read_time(reader, "backward_s");
  point.peak = Bytes(reader.integer("peak_bytes"));
  return point;
}

Json whole_json(const WholeModelPoint& point) {
  return {{"micro_batch_size", point.micro_batch_size},
          {"forward_s", to_json(point.forward)},
          {"backward_s", to_json(point.backward)},
          {"peak_bytes", point.peak.value}};
}

UpdatePoint read_update(ObjectReader& reader) {
  const Bytes parameters(reader.integer("parameter_bytes", {.min = 1}));
  return {parameters, read_time(reader, "update_s")};
}

Json update_json(const UpdatePoint& point) {
  return {{"parameter_bytes", point.parameters.value}, {"update_s", to_json(point.update)}};
}

OptimizerProfile read_optimizer(ObjectReader& reader) {
  OptimizerProfile optimizer;
  optimizer.name = reader.text("name");
  optimizer.state_bytes_per_parameter_byte =
      reader.number("state_bytes_per_parameter_byte", {.max = kLargestStateRatio});
  optimizer.update = read_time(reader, "update_s");
  optimizer.parameters = Bytes(reader.integer("parameter_bytes"));
  if (reader.has("parts")) {
    reader.objects("parts", [&](ObjectReader& member) { optimizer.parts.push_back(read_update(member)); });
  }
  if (reader.has("new_version")) {
    reader.object("new_version", [&](ObjectReader& member) { optimizer.new_version = read_update(member); });
  }
  return optimizer;
}

Json optimizer_json(const OptimizerProfile& optimizer) {
  Json json{{"name", optimizer.name},
            {"state_bytes_per_parameter_byte", optimizer.state_bytes_per_parameter_byte},
            {"update_s", to_json(optimizer.update)},
            {"parameter_bytes", optimizer.parameters.value}};
  if (optimizer.new_version) json["new_version"] = update_json(*optimizer.new_version);
  if (optimizer.parts.empty()) return json;
  json["parts"] = Json::array();
  for (const UpdatePoint& part : optimizer.parts) json["parts"].push_back(update_json(part));
  return json;
}

OperationOverhead read_overhead(ObjectReader& reader) {
  OperationOverhead overhead;
  overhead.forward = read_time(reader, "forward_s");
  overhead.backward = read_time(reader, "backward_s");
  return overhead;
}

Json overhead_json(const OperationOverhead& overhead) {
  return {{"forward_s", to_json(overhead.forward)}, {"backward_s", to_json(overhead.backward)}};
}

std::vector<std::int64_t> read_sizes(ObjectReader& reader) {
  std::vector<std::int64_t> sizes = reader.integers("micro_batch_sizes", kSizes);
  const bool ascending = std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>()) == sizes.end();
  if (sizes.empty() || !ascending) {
    reader.fail("micro_batch_sizes", to_text(sizes) + " must hold at least one size, ascending, each once");
  }
  return sizes;
}

/// The layers are those of the model, in its order.
void check_layers(const Profile& profile, const ObjectReader& reader) {
  const auto& layers = profile.model.layers;
  if (profile.layers.size() != layers.size()) {
    reader.fail("layers", "has " + std::to_string(profile.layers.size()) + " entries, but the model has " +
                              std::to_string(layers.size()) + " layers; profile the model again");
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (profile.layers[i].name == layers[i].name) continue;
    reader.fail("layers", "entry " + std::to_string(i) + " is \"" + profile.layers[i].name +
                              "\", but that layer of the model is \"" + layers[i].name +
                              "\"; profile the model again");
  }
}

Profile read_profile(ObjectReader& reader) {
  Profile profile;
  profile.context = read_context(reader);
  profile.model = model_from_json(reader.raw("model"), append_pointer(reader.pointer(), "model"));
  const std::string actual = model_hash(profile.model);
  profile.model_hash = reader.has("model_hash") ? reader.text("model_hash") : actual;
  if (profile.model_hash != actual) {
    reader.fail("model_hash", "is " + profile.model_hash + ", but the model in this file has " + actual +
                                  "; the model was changed after profiling, profile it again");
  }
  reader.object("device", [&](ObjectReader& member) { profile.device = read_device(member); });
  profile.dtype = weight_type_from_json(reader);
  profile.memory_format = memory_format_from_json(reader);
  profile.autocast = autocast_from_json(reader, profile.dtype);
  profile.mode = reader.enumerator<ProfileMode>("mode");
  if (reader.has("tensor_degree"))
    profile.tensor_degree = static_cast<int>(reader.integer("tensor_degree", {.min = 1, .max = kMaxInt}));
  if (reader.has("trainer"))
    profile.trainer = trainer_from_json(reader.raw("trainer"), append_pointer(reader.pointer(), "trainer"));
  profile.micro_batch_sizes = read_sizes(reader);
  const auto read = [&](ObjectReader& member) { return read_layer(member, profile.micro_batch_sizes); };
  reader.objects("layers", [&](ObjectReader& member) { profile.layers.push_back(read(member)); });
  check_layers(profile, reader);
  if (reader.has("loss")) reader.object("loss", [&](ObjectReader& member) { profile.loss = read(member); });
  reader.objects("whole_model",
                 [&](ObjectReader& member) { profile.whole_model.push_back(read_whole(member)); });
  reader.objects("optimizers",
                 [&](ObjectReader& member) { profile.optimizers.push_back(read_optimizer(member)); });
  profile.kernels = kernels_from_json(reader);
  if (reader.has("operation_overhead")) {
    reader.object("operation_overhead",
                  [&](ObjectReader& member) { profile.operation_overhead = read_overhead(member); });
  }
  profile.estimated = reader.texts("estimated");
  return profile;
}

template <class List, class Write>
Json list_json(const List& list, Write write) {
  Json json = Json::array();
  for (const auto& element : list) json.push_back(write(element));
  return json;
}

}  // namespace

const ValueType kWeightType{
    .read =
        [](const Field& field, const Json& json, const std::string& pointer, void* to) {
          detail::read_value<DType>(field, json, pointer, to);
          const std::string name(name_of(*static_cast<DType*>(to)));
          if (!is_floating(*static_cast<DType*>(to)))
            detail::fail_at(pointer, "weights cannot be " + name + "; use one of float32, float64, bfloat16");
        },
    .write = detail::write_value<DType>,
    .schema =
        [](const Field&) {
          std::vector<std::string> names;
          for (const auto& [type, name] : EnumNames<DType>::table)
            if (is_floating(type)) names.emplace_back(name);
          return detail::names_schema(names);
        },
    .expected = detail::value_expected<DType>};

DType weight_type_from_json(ObjectReader& reader) {
  DType dtype{};
  kWeightType.read({}, Json(reader.text("dtype")), append_pointer(reader.pointer(), "dtype"), &dtype);
  return dtype;
}

MemoryFormat memory_format_from_json(ObjectReader& reader) {
  return reader.has("memory_format") ? reader.enumerator<MemoryFormat>("memory_format")
                                     : MemoryFormat::contiguous;
}

void add_memory_format(Json& json, MemoryFormat format) {
  if (format != MemoryFormat::contiguous) json["memory_format"] = name_of(format);
}

std::optional<Autocast> autocast_from_json(ObjectReader& reader, DType dtype) {
  if (!reader.has("autocast")) return std::nullopt;
  const auto autocast = reader.enumerator<Autocast>("autocast");
  if (dtype != DType::float32) {
    reader.fail("autocast", "casts products of float32 weights, and dtype is " + std::string(name_of(dtype)) +
                                "; write float32, or leave it out");
  }
  return autocast;
}

void add_autocast(Json& json, std::optional<Autocast> autocast) {
  if (autocast) json["autocast"] = name_of(*autocast);
}

TimeStat time_stat_from_json(ObjectReader& reader) {
  TimeStat time;
  read_keys(keys_of(kTime), reader, &time);
  return time;
}

Json to_json(const TimeStat& time) { return to_json(kTime, time); }

Profile profile_from_json(const Json& json) {
  Profile profile;
  read_document(json, kProfileFormat, kProfileVersion,
                [&](ObjectReader& reader) { profile = read_profile(reader); });
  return profile;
}

Json to_json(const Profile& profile) {
  Json json{{"format", kProfileFormat}, {"version", kProfileVersion}};
  json["context"] = context_json(profile.context);
  json["model"] = to_json(profile.model);
  json["model_hash"] = profile.model_hash;
  json["device"] = device_json(profile.device);
  json["dtype"] = name_of(profile.dtype);
  add_memory_format(json, profile.memory_format);
  add_autocast(json, profile.autocast);
  json["mode"] = name_of(profile.mode);
  if (profile.tensor_degree != 1) json["tensor_degree"] = profile.tensor_degree;
  if (profile.trainer) json["trainer"] = to_json(*profile.trainer);
  json["micro_batch_sizes"] = profile.micro_batch_sizes;
  json["layers"] = list_json(profile.layers, layer_json);
  if (profile.loss) json["loss"] = layer_json(*profile.loss);
  json["whole_model"] = list_json(profile.whole_model, whole_json);
  json["optimizers"] = list_json(profile.optimizers, optimizer_json);
  if (profile.operation_overhead) json["operation_overhead"] = overhead_json(*profile.operation_overhead);
  add_kernels(json, profile.kernels);
  json["estimated"] = profile.estimated;
  return json;
}

Profile parse_profile(std::string_view text) { return profile_from_json(parse_json(text)); }

}  // namespace pp
