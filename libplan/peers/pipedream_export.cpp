#include "libplan/peers/pipedream_export.h"

#include <map>
#include <nlohmann/json.hpp>

#include "libplan/cost/graph.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Shortest text that reads back equal.
std::string number(double value) { return Json(value).dump(); }

std::string node_line(const Layer& layer, const LayerProfile& profile, int stage) {
  const LayerPoint& point = profile.points.front();
  return layer.name + " -- " + layer.op +
         " -- forward_compute_time=" + number(point.forward.median.count() * 1e3) +
         ", backward_compute_time=" + number(point.backward.median.count() * 1e3) +
         ", activation_size=" + std::to_string(point.output.value) +
         ", parameter_size=" + std::to_string(profile.parameters.value) +
         " -- stage_id=" + std::to_string(stage) + '\n';
}

}  // namespace

std::string export_pipedream(const Plan& plan, const Profile& profile) {
  if (model_hash(plan.model) != profile.model_hash) {
    throw Error(ErrorKind::data, "the plan is for model " + plan.model.name + ", which is not the profile's, " +
                                     profile.model.name + "; give the profile that the plan was made from");
  }
  std::map<std::string, int> stage_of;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const std::string& layer : plan.stages[s].layers) stage_of[layer] = static_cast<int>(s);
  }
  std::string text;
  for (std::size_t i = 0; i < profile.layers.size(); ++i)
    text += node_line(profile.model.layers[i], profile.layers[i], stage_of.at(profile.layers[i].name));
  for (const GraphLayer& layer : make_graph(profile).layers) {
    for (const int producer : layer.producers) {
      text += '\t';
      text += profile.layers[at(producer)].name + " -- " + layer.name + '\n';
    }
  }
  return text;
}

}  // namespace pp::plan
