#include "libprofile/measure/layer_samples.h"

#include "libprofile/measure/statistics.h"

namespace pp::profile {
namespace {

using Phase = model::LayerObserver::Phase;

double at(const PassTimes& pass, Phase phase, std::size_t position) {
  return pass[static_cast<std::size_t>(phase)][position];
}

}  // namespace

LayerSamples::LayerSamples(int positions) : positions_(static_cast<std::size_t>(positions)) {}

void LayerSamples::Samples::add(const PassTimes& pass, std::size_t position, bool split) {
  forward.push_back(at(pass, Phase::forward, position));
  if (split) {
    input_gradient.push_back(at(pass, Phase::input_gradient, position));
    weight_gradient.push_back(at(pass, Phase::weight_gradient, position));
  } else {
    backward.push_back(at(pass, Phase::backward, position));
  }
}

std::optional<LayerTimes> LayerSamples::Samples::medians() const {
  if (backward.empty() || input_gradient.empty()) return std::nullopt;
  return LayerTimes{summarise(forward).median, summarise(backward).median, summarise(input_gradient).median,
                    summarise(weight_gradient).median};
}

void LayerSamples::add(const VisitTimes& times, PassKind kind) {
  for (std::size_t p = 0; p < positions_.size(); ++p) {
    Position& position = positions_[p];
    for (const PassTimes& pass : times.layers) position.of(kind).add(pass, p, is_split(kind));
    if (times.first && has_first(kind)) position.first.add(*times.first, p, is_split(kind));
  }
  whole_forward_.insert(whole_forward_.end(), times.forward.begin(), times.forward.end());
  whole_backward_.insert(whole_backward_.end(), times.backward.begin(), times.backward.end());
}

void LayerSamples::fill_times(int position, LayerPoint& point) const {
  const auto& [all, first, alone, in_part] = positions_[static_cast<std::size_t>(position)];
  point.forward = summarise(all.forward);
  point.backward = summarise(all.backward);
  point.input_gradient = summarise(all.input_gradient);
  point.weight_gradient = summarise(all.weight_gradient);
  point.first = first.medians();
  point.alone = alone.medians();
  point.in_part = in_part.medians();
}

void LayerSamples::fill_times(WholeModelPoint& point) const {
  point.forward = summarise(whole_forward_);
  point.backward = summarise(whole_backward_);
}

}  // namespace pp::profile
