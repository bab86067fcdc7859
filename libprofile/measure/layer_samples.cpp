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

void LayerSamples::add(const VisitTimes& times, PassKind kind) {
  for (const PassTimes& pass : times.layers) {
    for (std::size_t p = 0; p < positions_.size(); ++p) {
      positions_[p].forward.push_back(at(pass, Phase::forward, p));
      if (kind == PassKind::split) {
        positions_[p].input_gradient.push_back(at(pass, Phase::input_gradient, p));
        positions_[p].weight_gradient.push_back(at(pass, Phase::weight_gradient, p));
      } else {
        positions_[p].backward.push_back(at(pass, Phase::backward, p));
      }
    }
  }
  whole_forward_.insert(whole_forward_.end(), times.forward.begin(), times.forward.end());
  whole_backward_.insert(whole_backward_.end(), times.backward.begin(), times.backward.end());
}

void LayerSamples::fill_times(int position, LayerPoint& point) const {
  const Position& samples = positions_[static_cast<std::size_t>(position)];
  point.forward = summarise(samples.forward);
  point.backward = summarise(samples.backward);
  point.input_gradient = summarise(samples.input_gradient);
  point.weight_gradient = summarise(samples.weight_gradient);
}

void LayerSamples::fill_times(WholeModelPoint& point) const {
  point.forward = summarise(whole_forward_);
  point.backward = summarise(whole_backward_);
}

}  // namespace pp::profile
