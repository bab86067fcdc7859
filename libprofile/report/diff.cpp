#include "libprofile/report/diff.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "libprofile/report/layer_rows.h"

namespace pp::profile {

namespace {

/// What is equal when two profiles were taken of one model in one way.
std::vector<Difference> facts(const Profile& first, const Profile& second) {
  const auto& a = first.device;
  const auto& b = second.device;
  const auto text = [](const auto& value) { return std::to_string(value); };
  const auto name = [](auto value) { return std::string(name_of(value)); };
  const auto autocast = [&](const Profile& profile) {
    return profile.autocast ? name(*profile.autocast) : "none";
  };
  const auto type = [&](const Profile& profile) {
    return profile.products ? name(*profile.products) : name(profile.dtype);
  };
  return {{"model", first.model.name, second.model.name},
          {"model hash", first.model_hash, second.model_hash},
          {"dtype", type(first), type(second)},
          {"memory format", name(first.memory_format), name(second.memory_format)},
          {"autocast", autocast(first), autocast(second)},
          {"kernels", name_of_kernels(first.kernels), name_of_kernels(second.kernels)},
          {"mode", name(first.mode), name(second.mode)},
          {"tensor degree", text(first.tensor_degree), text(second.tensor_degree)},
          {"context degree", text(first.context_parallel.degree), text(second.context_parallel.degree)},
          {"expert degree", text(first.expert_parallel.degree), text(second.expert_parallel.degree)},
          {"shard degree", text(first.shard_group.degree), text(second.shard_group.degree)},
          {"device kind", name(a.kind), name(b.kind)},
          {"device name", a.name, b.name},
          {"cores per device", text(a.cores_per_device), text(b.cores_per_device)},
          {"devices busy", text(a.devices_busy), text(b.devices_busy)},
          {"device memory", to_text(a.memory), to_text(b.memory)},
          {"micro-batch sizes", to_text(first.micro_batch_sizes), to_text(second.micro_batch_sizes)}};
}

std::vector<Difference> context_facts(const Context& first, const Context& second) {
  std::set<std::string> keys;
  for (const auto& [key, value] : first) keys.insert(key);
  for (const auto& [key, value] : second) keys.insert(key);
  const auto value_of = [](const Context& context, const std::string& key) {
    const auto found = context.find(key);
    return found == context.end() ? "-" : found->second;
  };
  std::vector<Difference> facts;
  for (const std::string& key : keys)
    facts.push_back({"context " + key, value_of(first, key), value_of(second, key)});
  return facts;
}

std::int64_t common_size(const Profile& first, const Profile& second) {
  std::vector<std::int64_t> common;
  std::ranges::set_intersection(first.micro_batch_sizes, second.micro_batch_sizes, std::back_inserter(common));
  if (!common.empty()) return common.back();
  throw Error(ErrorKind::usage,
              "the profiles have no micro-batch size in common: " + to_text(first.micro_batch_sizes) + " and " +
                  to_text(second.micro_batch_sizes) + "; profile one of them at a size of the other");
}

struct Interval {
  Seconds low, high;
};

/// Imported times have no spread.
Interval interval(const LayerPoint& point) {
  const auto low = [](const TimeStat& time) { return time.samples > 0 ? time.low : time.median; };
  const auto high = [](const TimeStat& time) { return time.samples > 0 ? time.high : time.median; };
  return {low(point.forward) + low(point.backward), high(point.forward) + high(point.backward)};
}

LayerDiff compare(const LayerRow& first, const LayerRow& second) {
  const Interval a = interval(*first.point);
  const Interval b = interval(*second.point);
  return {.name = first.layer->name,
          .first = first.time(),
          .second = second.time(),
          .first_memory = first.memory(),
          .second_memory = second.memory(),
          .within_spread = a.low <= b.high && b.low <= a.high};
}

LayerDiff total_of(const std::vector<LayerDiff>& layers) {
  LayerDiff total{.name = "total", .within_spread = true};
  for (const LayerDiff& layer : layers) {
    total.first += layer.first;
    total.second += layer.second;
    total.first_memory += layer.first_memory;
    total.second_memory += layer.second_memory;
    total.within_spread &= layer.within_spread;
  }
  return total;
}

double median_change(const std::vector<LayerDiff>& layers) {
  std::vector<double> changes;
  for (const LayerDiff& layer : layers) {
    if (const auto ratio = layer.ratio()) changes.push_back(std::abs(*ratio - 1));
  }
  if (changes.empty()) return 0;
  std::ranges::sort(changes);
  const std::size_t half = changes.size() / 2;
  return changes.size() % 2 == 1 ? changes[half] : (changes[half - 1] + changes[half]) / 2;
}

const LayerRow* find(const std::vector<LayerRow>& rows, const std::string& name) {
  const auto found = std::ranges::find_if(rows, [&](const LayerRow& row) { return row.layer->name == name; });
  return found == rows.end() || found->point->out_of_memory ? nullptr : &*found;
}

}  // namespace

std::optional<double> LayerDiff::ratio() const {
  if (first <= Seconds{}) return std::nullopt;
  return second / first;
}

ProfileDiff diff_profiles(const Profile& first, const Profile& second,
                          std::optional<std::int64_t> micro_batch_size) {
  ProfileDiff diff;
  diff.differences = facts(first, second);
  std::ranges::move(context_facts(first.context, second.context), std::back_inserter(diff.differences));
  std::erase_if(diff.differences, [](const Difference& fact) { return fact.first == fact.second; });
  diff.micro_batch_size = micro_batch_size.value_or(0);
  if (!micro_batch_size) diff.micro_batch_size = common_size(first, second);

  const auto rows_of = [&](const Profile& profile) {
    return layer_rows(profile, size_position(profile, diff.micro_batch_size), LayerOrder::model);
  };
  const std::vector<LayerRow> a = rows_of(first);
  const std::vector<LayerRow> b = rows_of(second);
  for (const LayerRow& row : a) {
    const std::string& name = row.layer->name;
    const LayerRow* other = find(b, name);
    if (other == nullptr || row.point->out_of_memory) {
      diff.only_first.push_back(name);
    } else {
      diff.layers.push_back(compare(row, *other));
    }
  }
  for (const LayerRow& row : b) {
    if (find(a, row.layer->name) == nullptr) diff.only_second.push_back(row.layer->name);
  }
  diff.total = total_of(diff.layers);
  diff.median_change = median_change(diff.layers);
  return diff;
}

namespace {

Json layer_json(const LayerDiff& layer) {
  Json json{{"name", layer.name}, {"first_s", layer.first.count()}, {"second_s", layer.second.count()}};
  if (const auto ratio = layer.ratio()) json["ratio"] = *ratio;
  json["within_spread"] = layer.within_spread;
  json["first_bytes"] = layer.first_memory.value;
  json["second_bytes"] = layer.second_memory.value;
  return json;
}

}  // namespace

Json to_json(const ProfileDiff& diff) {
  Json json{{"micro_batch_size", diff.micro_batch_size}};
  json["differences"] = Json::array();
  for (const Difference& difference : diff.differences) {
    json["differences"].push_back(
        {{"what", difference.what}, {"first", difference.first}, {"second", difference.second}});
  }
  json["layers"] = Json::array();
  for (const LayerDiff& layer : diff.layers) json["layers"].push_back(layer_json(layer));
  json["total"] = layer_json(diff.total);
  json["median_change"] = diff.median_change;
  json["only_first"] = diff.only_first;
  json["only_second"] = diff.only_second;
  return json;
}

}  // namespace pp::profile
