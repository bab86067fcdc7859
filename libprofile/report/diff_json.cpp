// The keys of `pp-profile diff --json`.
#include "libprofile/report/diff.h"

#include <nlohmann/json.hpp>

namespace pp::profile {
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
