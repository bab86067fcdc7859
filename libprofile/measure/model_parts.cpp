#include "libprofile/measure/model_parts.h"

#include <algorithm>
#include <utility>

namespace pp::profile {
namespace {

void append(PassTimes& times, const PassTimes& more) {
  for (std::size_t phase = 0; phase < times.size(); ++phase)
    times[phase].insert(times[phase].end(), more[phase].begin(), more[phase].end());
}

}  // namespace

std::vector<ModelPart> model_parts(const ResolvedModel& model, int count) {
  const int layers = model.layer_count();
  if (count < 2 || layers < count) return {};
  double all = 0;
  for (const ResolvedLayer& layer : model.layers) all += layer.forward_flops.value;
  std::vector<ModelPart> parts;
  double done = 0;
  int layer = 0;
  for (int part = 0; part < count; ++part) {
    const int last = layers - (count - part - 1);  // the parts behind need a layer each
    const double end = all * (part + 1) / count;
    ModelPart& next = parts.emplace_back();
    do {
      next.layers.push_back(layer);
      done += model.layers[static_cast<std::size_t>(layer++)].forward_flops.value;
    } while (layer < last && (done < end || part + 1 == count));
  }
  parts.back().with_loss = model.graph.loss.has_value();
  return parts;
}

std::vector<ModelPart> parts_to_measure(const ResolvedModel& model, const ModelPart& part, int devices) {
  if (part.positions() != whole_model(model).positions()) return {};
  return model_parts(model, devices);
}

VisitTimes joined(const std::vector<VisitTimes>& parts) {
  VisitTimes all = parts.front();
  for (std::size_t part = 1; part < parts.size(); ++part) {
    for (std::size_t pass = 0; pass < all.layers.size(); ++pass)
      append(all.layers[pass], parts[part].layers[pass]);
    if (all.first) append(*all.first, *parts[part].first);
  }
  return all;
}

}  // namespace pp::profile
