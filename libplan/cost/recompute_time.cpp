#include "libplan/cost/recompute_time.h"

#include <algorithm>

#include "libprofile/core/index.h"

namespace pp::plan {

RecomputeTime::RecomputeTime(const Chain& chain, const StageMemory& memory) : chain_(chain), memory_(memory) {
  const InFlight& in_flight = memory.in_flight();
  const bool layers = memory.limited() && in_flight.units != nullptr;
  if (in_flight.recompute == RecomputeMode::automatic && layers) make_classes();
}

void RecomputeTime::make_classes() {
  constexpr std::size_t kClasses = 16;
  struct Layer {
    double rate;
    std::int64_t saved;
    int position;
  };
  std::vector<Layer> layers;
  for (int p = 0; p < chain_.size(); ++p) {
    const bool last = p + 1 == chain_.size();
    LayerSums layer = chain_.between(p, p + 1);
    if (last) layer -= chain_.loss;
    const auto [saved, forward] = std::pair(layer.saved, layer.times.forward);
    if (saved > 0) layers.push_back({std::max(0.0, forward) / static_cast<double>(saved), saved, p});
  }
  std::ranges::stable_sort(layers, {}, &Layer::rate);
  const std::size_t classes = std::min(kClasses, layers.size());
  for (std::size_t c = 0; c < classes; ++c) {
    const std::size_t first = c * layers.size() / classes;
    const std::size_t last = (c + 1) * layers.size() / classes;
    Class& one = classes_.emplace_back();
    one.seconds_per_byte = layers[first].rate;
    one.saved.assign(at(chain_.size()) + 1, 0);
    for (std::size_t i = first; i < last; ++i) {
      one.saved[at(layers[i].position) + 1] = layers[i].saved;
    }
    for (std::size_t k = 1; k < one.saved.size(); ++k) one.saved[k] += one.saved[k - 1];
  }
}

double RecomputeTime::again(double count, double one) const {
  const bool but_last = memory_.in_flight().recompute == RecomputeMode::except_last;
  return but_last ? std::max(0.0, count - one) : count;
}

double RecomputeTime::seconds(int begin, int end, int replicas) const {
  const RecomputeMode mode = memory_.in_flight().recompute;
  if (mode == RecomputeMode::never) return 0;
  if (mode != RecomputeMode::automatic) return chain_.stage_forward(begin, end);
  if (classes_.empty()) return 0;
  const int window = memory_.least_window(replicas, 0);
  auto excess = static_cast<double>(memory_.least_excess({begin, end, replicas}, window));
  if (excess <= 0) return 0;
  const double held = memory_.held(replicas, window);
  double seconds = 0;
  for (const Class& layers : classes_) {
    const double given =
        std::min(excess, held * static_cast<double>(layers.saved[at(end)] - layers.saved[at(begin)]));
    seconds += given / held * layers.seconds_per_byte;
    excess -= given;
    if (excess <= 0) break;
  }
  return seconds;
}

}  // namespace pp::plan
