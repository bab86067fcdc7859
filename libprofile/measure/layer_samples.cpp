#include "libprofile/measure/layer_samples.h"

#include <algorithm>

#include "libprofile/measure/statistics.h"

namespace pp::profile {
namespace {

using Phase = model::LayerObserver::Phase;

double at(const PassTimes& pass, Phase phase, std::size_t position) {
  return pass[static_cast<std::size_t>(phase)][position];
}

}  // namespace

LayerSamples::LayerSamples(int positions) : positions_(static_cast<std::size_t>(positions)) {}

void LayerSamples::Samples::add(const PassTimes& pass, std::size_t position, Laps laps) {
  forward.push_back(at(pass, Phase::forward, position));
  if (laps == Laps::split) {
    input_gradient.push_back(at(pass, Phase::input_gradient, position));
    weight_gradient.push_back(at(pass, Phase::weight_gradient, position));
  } else {
    backward.push_back(at(pass, Phase::backward, position));
  }
}

LayerSamples::Positions& LayerSamples::under(const Condition& condition) {
  const auto found = std::ranges::find(samples_, condition, &std::pair<Condition, Positions>::first);
  if (found != samples_.end()) return found->second;
  return samples_.emplace_back(condition, Positions(positions_)).second;
}

void LayerSamples::add(const Condition& condition, const PassTimes& pass, Laps laps) {
  Positions& positions = under(condition);
  for (std::size_t p = 0; p < positions.size(); ++p) positions[p].add(pass, p, laps);
}

void LayerSamples::add(const VisitTimes& times, const PassKind& kind) {
  for (const PassTimes& pass : times.layers) add(kind.condition, pass, kind.laps);
  if (times.first && kind.with_first) {
    Condition first = kind.condition;
    first.after_update = true;
    add(first, *times.first, kind.laps);
  }
  whole_forward_.insert(whole_forward_.end(), times.forward.begin(), times.forward.end());
  whole_backward_.insert(whole_backward_.end(), times.backward.begin(), times.backward.end());
}

std::optional<LayerTimes> LayerSamples::times(const Condition& condition, int position) const {
  const auto found = std::ranges::find(samples_, condition, &std::pair<Condition, Positions>::first);
  if (found == samples_.end()) return std::nullopt;
  const Samples& of = found->second[static_cast<std::size_t>(position)];
  if (of.backward.empty() || of.input_gradient.empty()) return std::nullopt;
  return LayerTimes{summarise(of.forward), summarise(of.backward), summarise(of.input_gradient),
                    summarise(of.weight_gradient)};
}

void LayerSamples::fill_times(int position, LayerPoint& point) const {
  const LayerTimes usual = times({}, position).value_or(LayerTimes{});
  point.forward = usual.forward;
  point.backward = usual.backward;
  point.input_gradient = usual.input_gradient;
  point.weight_gradient = usual.weight_gradient;
  point.first = times({.after_update = true}, position);
  point.alone = times({.busy = false}, position);
  point.in_part = times({.cut = true}, position);
}

void LayerSamples::fill_times(WholeModelPoint& point) const {
  point.forward = summarise(whole_forward_);
  point.backward = summarise(whole_backward_);
}

}  // namespace pp::profile
