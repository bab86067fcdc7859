#include "libprofile/measure/layer_probes.h"

#include <algorithm>
#include <utility>

namespace pp::profile {
namespace {

PassTimes no_times(int positions) {
  PassTimes times;
  times.fill(std::vector<double>(static_cast<std::size_t>(positions), 0.0));
  return times;
}

}  // namespace

LapTimer::LapTimer(const Clock& clock, int positions)
    : clock_(clock), positions_(positions), times_(no_times(positions)) {}

void LapTimer::end(int position, Phase phase) {
  const Seconds now = clock_.now();
  times_[static_cast<std::size_t>(phase)][static_cast<std::size_t>(position)] += (now - last_).count();
  last_ = now;
}

PassTimes LapTimer::take() { return std::exchange(times_, no_times(positions_)); }

ByteProbe::ByteProbe(std::vector<Bytes> outputs, SavedMeter& saved, const MemoryAccount& account)
    : outputs_(std::move(outputs)),
      saved_(saved),
      account_(account),
      live_before_(account.live()),
      kept_(outputs_.size()),
      workspace_(outputs_.size()) {}

void ByteProbe::begin(int position, Phase phase) {
  if (phase == Phase::forward) saved_.enter(position);
  account_.reset_peak();
  live_at_begin_ = account_.live();
}

void ByteProbe::end(int position, Phase phase) {
  const std::size_t p = static_cast<std::size_t>(position);
  saved_.leave();
  if (phase == Phase::forward) kept_[p] = saved_.made();
  const bool whole = phase == Phase::forward || phase == Phase::backward;
  const Bytes below = whole ? live_before_ + kept_[p] : live_at_begin_ - outputs_[p];
  workspace_[p] = std::max(workspace_[p], account_.peak() - below);
}

}  // namespace pp::profile
