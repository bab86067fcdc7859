#include "libprofile/measure/model_parts.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace pp::profile {
namespace {

void append(PassTimes& times, const PassTimes& more) {
  for (std::size_t phase = 0; phase < times.size(); ++phase)
    times[phase].insert(times[phase].end(), more[phase].begin(), more[phase].end());
}

}  // namespace

std::vector<ModelPart> model_parts(const ResolvedModel& model, int count, std::span<const double> costs) {
  const int layers = model.layer_count();
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<ModelPart> parts;
  double done = 0;
  int layer = 0;
  for (int part = 0; part < count; ++part) {
    const int last = layers - (count - part - 1);  // the parts behind need a layer each
    const double end = all * (part + 1) / count;
    ModelPart& next = parts.emplace_back();
    const auto belongs_here = [&] {
      return part + 1 == count || done + costs[static_cast<std::size_t>(layer)] / 2 < end;
    };
    do {
      next.layers.push_back(layer);
      done += costs[static_cast<std::size_t>(layer++)];
    } while (layer < last && belongs_here());
  }
  parts.back().with_loss = model.graph.loss.has_value();
  return parts;
}

bool are_parts_measured(const ResolvedModel& model, const ModelPart& part, int devices) {
  return devices > 1 && model.layer_count() >= devices && part.positions() == whole_model(model).positions();
}

std::vector<double> layer_costs(const VisitTimes& times, int layers) {
  std::vector<double> costs(static_cast<std::size_t>(layers));
  for (std::size_t position = 0; position < times.layers.front().front().size(); ++position) {
    double shortest = std::numeric_limits<double>::infinity();
    for (const PassTimes& pass : times.layers) {
      double sum = 0;
      for (const std::vector<double>& phase : pass) sum += position < phase.size() ? phase[position] : 0;
      shortest = std::min(shortest, sum);
    }
    costs[std::min(position, costs.size() - 1)] += shortest;
  }
  return costs;
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
