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

void LapTimer::start() {
  laps_.emplace_back();
  timer_.mark();
}

void LapTimer::end(int position, Phase phase) {
  laps_.emplace_back(Lap{phase, position});
  timer_.mark();
}

PassTimes LapTimer::take() {
  PassTimes times = no_times(positions_);
  const std::vector<double> seconds = timer_.take();
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const std::optional<Lap>& lap = laps_[i + 1];
    if (lap) times[static_cast<std::size_t>(lap->phase)][static_cast<std::size_t>(lap->position)] += seconds[i];
  }
  laps_.clear();
  return times;
}

ByteProbe::ByteProbe(std::vector<Bytes> outputs, std::vector<DataInput> data, SavedMeter& saved,
                     const MemoryAccount& account)
    : outputs_(std::move(outputs)),
      data_(std::move(data)),
      saved_(saved),
      account_(account),
      live_before_(account.live()),
      kept_(outputs_.size()),
      workspace_(outputs_.size()),
      waiting_(outputs_.size()) {}

void ByteProbe::begin(int position, Phase phase) {
  if (phase == Phase::forward) saved_.enter(position);
  account_.reset_peak();
  live_at_begin_ = account_.live();
}

void ByteProbe::end(int position, Phase phase) {
  const std::size_t p = static_cast<std::size_t>(position);
  saved_.leave();
  if (phase == Phase::forward) kept_[p] = saved_.made();
  if (phase == Phase::weight_gradient) waiting_[p] = live_at_begin_ - account_.live();
  const bool whole = phase == Phase::forward || phase == Phase::backward;
  const Bytes above = phase == Phase::forward ? passing(position) : Bytes(0);
  const Bytes below = whole ? live_before_ + kept_[p] : live_at_begin_ - outputs_[p];
  workspace_[p] = std::max(workspace_[p], account_.peak() + above - below);
}

Bytes ByteProbe::passing(int position) const {
  Bytes bytes;
  for (const DataInput& input : data_) {
    if (input.first <= position && position <= input.last && !saved_.keeps(input.tensor))
      bytes += Bytes(static_cast<std::int64_t>(input.tensor.nbytes()));
  }
  return bytes;
}

}  // namespace pp::profile
