// The keys of pp.cluster; devices and levels stand in pp.plan too.
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/cluster.h"
#include "libprofile/core/context.h"

namespace pp {
namespace {

constexpr std::string_view kClusterFormat = "pp.cluster";
constexpr int kClusterVersion = 1;
constexpr std::int64_t kMostOfInt = std::numeric_limits<int>::max();
constexpr double kLeast = std::numeric_limits<double>::min();  // above 0

int small_integer(ObjectReader& reader, std::string_view key, std::int64_t min) {
  return static_cast<int>(reader.integer(key, {.min = min, .max = kMostOfInt}));
}

LinkSample read_sample(ObjectReader& reader) {
  LinkSample sample;
  sample.size = Bytes(reader.integer("size_bytes"));
  reader.object("time_s", [&](ObjectReader& member) { sample.time = time_stat_from_json(member); });
  return sample;
}

std::vector<LinkSample> read_samples(ObjectReader& reader) {
  std::vector<LinkSample> samples;
  if (reader.has("samples"))
    reader.objects("samples", [&](ObjectReader& member) { samples.push_back(read_sample(member)); });
  return samples;
}

Json samples_json(const std::vector<LinkSample>& samples) {
  Json json = Json::array();
  for (const LinkSample& sample : samples)
    json.push_back({{"size_bytes", sample.size.value}, {"time_s", to_json(sample.time)}});
  return json;
}

MeasuredAllReduce read_all_reduce(ObjectReader& reader) {
  MeasuredAllReduce measured;
  measured.bandwidth = BytesPerSecond(reader.number("bandwidth_bytes_per_s", {.min = kLeast}));
  measured.latency = Seconds(reader.number("latency_s"));
  measured.fit_residual = reader.number("fit_residual");
  if (reader.has("overlap")) measured.overlap = reader.number("overlap", {.max = 1});
  if (reader.has("bandwidth_beyond_bytes_per_s")) {
    measured.cached = Bytes(reader.integer("cached_bytes"));
    measured.beyond = BytesPerSecond(
        reader.number("bandwidth_beyond_bytes_per_s", {.min = kLeast, .max = measured.bandwidth.value}));
  }
  measured.samples = read_samples(reader);
  return measured;
}

Json all_reduce_json(const MeasuredAllReduce& measured) {
  Json json{{"bandwidth_bytes_per_s", measured.bandwidth.value},
            {"latency_s", measured.latency.count()},
            {"fit_residual", measured.fit_residual}};
  if (measured.overlap != MeasuredAllReduce{}.overlap) json["overlap"] = measured.overlap;
  if (measured.beyond != MeasuredAllReduce{}.beyond) {
    json["cached_bytes"] = measured.cached.value;
    json["bandwidth_beyond_bytes_per_s"] = measured.beyond.value;
  }
  json["samples"] = samples_json(measured.samples);
  return json;
}

void read_transport(Level& level, ObjectReader& reader) {
  if (reader.has("message_cost_s")) level.message_cost = Seconds(reader.number("message_cost_s"));
  if (reader.has("overlap")) level.overlap = reader.number("overlap", {.max = 1});
  if (reader.has("duplex")) level.duplex = reader.enumerator<Duplex>("duplex");
}

/// Defaults are left out.
void add_transport(Json& json, const Level& level) {
  const Level usual;
  if (level.message_cost != usual.message_cost) json["message_cost_s"] = level.message_cost.count();
  if (level.overlap != usual.overlap) json["overlap"] = level.overlap;
  if (level.duplex != usual.duplex) json["duplex"] = name_of(level.duplex);
}

void check_ids(const Cluster& cluster, const ObjectReader& reader) {
  if (cluster.devices.empty()) reader.fail("devices", "is empty; a cluster needs at least one device");
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    if (index(cluster.devices[i].id) == i) continue;
    reader.fail("devices", "entry " + std::to_string(i) + " has id " +
                               std::to_string(number(cluster.devices[i].id)) +
                               "; number the devices 0, 1, 2, ... in their order");
  }
}

/// Cards join the innermost groups.
void check_cards(const Cluster& cluster, const ObjectReader& reader) {
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    if (cluster.levels[i].cards == 1 || (i == 0 && cluster.levels.size() > 1)) continue;
    reader.fail("levels", "entry " + std::to_string(i) + " has " + std::to_string(cluster.levels[i].cards) +
                              " cards; they belong to the innermost of several levels, remove them");
  }
}

/// Each level's group is made of whole groups of the level inside it; the outermost one holds every device.
void check_levels(const Cluster& cluster, const ObjectReader& reader) {
  int inner = 1;
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    const int devices = cluster.levels[i].devices;
    if (devices % inner != 0) {
      reader.fail("levels", "entry " + std::to_string(i) + " has groups of " + std::to_string(devices) +
                                " devices, not a multiple of the " + std::to_string(inner) +
                                " inside it; count cumulatively, from the innermost level outwards");
    }
    inner = devices;
  }
  if (static_cast<std::size_t>(inner) < cluster.devices.size()) {
    reader.fail("levels", "the outermost level joins " + std::to_string(inner) + " of " +
                              std::to_string(cluster.devices.size()) +
                              " devices; add a level that joins all of them");
  }
}

Cluster read_cluster(ObjectReader& reader) {
  Cluster cluster;
  cluster.context = read_context(reader);
  if (reader.has("measured")) cluster.measured = reader.boolean("measured");
  reader.objects("devices", [&](ObjectReader& member) { cluster.devices.push_back(device_from_json(member)); });
  check_ids(cluster, reader);
  reader.objects("levels", [&](ObjectReader& member) { cluster.levels.push_back(level_from_json(member)); });
  check_levels(cluster, reader);
  check_cards(cluster, reader);
  return cluster;
}

}  // namespace

Device device_from_json(ObjectReader& reader) {
  Device device;
  device.id = DeviceId{small_integer(reader, "id", 0)};
  device.kind = reader.enumerator<DeviceKind>("kind");
  device.index = reader.has("index") ? small_integer(reader, "index", 0) : number(device.id);
  if (reader.has("cores")) {
    for (const std::int64_t core : reader.integers("cores", {.max = kMostOfInt}))
      device.cores.push_back(static_cast<int>(core));
    if (device.kind != DeviceKind::cpu && !device.cores.empty())
      reader.fail("cores", "belongs to cpu devices only; remove it");
  }
  if (reader.has("node")) device.node = reader.text("node");
  if (reader.has("memory_bytes")) device.memory = Bytes(reader.integer("memory_bytes"));
  if (reader.has("speed")) device.speed = reader.number("speed", {.min = 1e-6, .max = 1e6});
  if (reader.has("model")) device.model = reader.text("model");
  return device;
}

Json to_json(const Device& device) {
  Json json{{"id", number(device.id)}, {"kind", name_of(device.kind)}, {"index", device.index}};
  if (device.kind == DeviceKind::cpu) json["cores"] = device.cores;
  json["node"] = device.node;
  json["memory_bytes"] = device.memory.value;
  json["speed"] = device.speed;
  if (!device.model.empty()) json["model"] = device.model;
  return json;
}

Level level_from_json(ObjectReader& reader) {
  Level level;
  level.name = reader.text("name");
  level.devices = small_integer(reader, "devices", 1);
  if (reader.has("cards")) {
    level.cards = small_integer(reader, "cards", 1);
    if (level.devices % level.cards != 0) {
      reader.fail("cards", std::to_string(level.cards) + " cards do not serve equally many of " +
                               std::to_string(level.devices) + " devices; give a divisor of that number");
    }
  }
  level.bandwidth = BytesPerSecond(reader.number("bandwidth_bytes_per_s", {.min = kLeast}));
  if (reader.has("latency_s")) level.latency = Seconds(reader.number("latency_s"));
  read_transport(level, reader);
  if (reader.has("fit_residual")) level.fit_residual = reader.number("fit_residual");
  level.samples = read_samples(reader);
  if (reader.has("all_reduce"))
    reader.object("all_reduce", [&](ObjectReader& member) { level.all_reduce = read_all_reduce(member); });
  return level;
}

Json to_json(const Level& level) {
  Json json{{"name", level.name},
            {"devices", level.devices},
            {"bandwidth_bytes_per_s", level.bandwidth.value},
            {"latency_s", level.latency.count()}};
  if (level.cards != Level{}.cards) json["cards"] = level.cards;
  add_transport(json, level);
  json["fit_residual"] = level.fit_residual;
  json["samples"] = samples_json(level.samples);
  if (level.all_reduce) json["all_reduce"] = all_reduce_json(*level.all_reduce);
  return json;
}

Cluster cluster_from_json(const Json& json) {
  Cluster cluster;
  read_document(json, kClusterFormat, kClusterVersion,
                [&](ObjectReader& reader) { cluster = read_cluster(reader); });
  return cluster;
}

Json to_json(const Cluster& cluster) {
  Json json{{"format", kClusterFormat}, {"version", kClusterVersion}};
  json["context"] = context_json(cluster.context);
  json["measured"] = cluster.measured;
  json["devices"] = Json::array();
  for (const Device& device : cluster.devices) json["devices"].push_back(to_json(device));
  json["levels"] = Json::array();
  for (const Level& level : cluster.levels) json["levels"].push_back(to_json(level));
  return json;
}

Cluster parse_cluster(std::string_view text) { return cluster_from_json(parse_json(text)); }

}  // namespace pp
