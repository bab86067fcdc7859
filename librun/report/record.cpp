#include "librun/report/record.h"

#include <algorithm>

namespace pp::run {

void StepHistory::add(Seconds step, std::span<const StepFigures> workers) {
  if (steps == stride * static_cast<std::int64_t>(kMost)) join_neighbours();
  peak.resize(workers.size());
  const std::int64_t joined = steps++ % stride;  // steps that are in the last sample already
  if (joined == 0) {
    time.push_back(step);
    for (std::size_t w = 0; w < workers.size(); ++w) peak[w].push_back(workers[w].peak);
    return;
  }
  time.back() += (step - time.back()) / static_cast<double>(joined + 1);
  for (std::size_t w = 0; w < workers.size(); ++w) peak[w].back() = std::max(peak[w].back(), workers[w].peak);
}

void StepHistory::join_neighbours() {
  for (std::size_t i = 0; i < kMost / 2; ++i) {
    time[i] = (time[2 * i] + time[2 * i + 1]) / 2;
    for (std::vector<Bytes>& worker : peak) worker[i] = std::max(worker[2 * i], worker[2 * i + 1]);
  }
  time.resize(kMost / 2);
  for (std::vector<Bytes>& worker : peak) worker.resize(kMost / 2);
  stride *= 2;
}

void TimeSample::add(Seconds time) {
  if (count_ == 0) kept_.reserve(kMost);
  if (count_++ % stride_ != 0) return;
  kept_.push_back(time);
  if (kept_.size() < kMost) return;
  for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
  kept_.resize((kept_.size() + 1) / 2);
  stride_ *= 2;
}

void StepFigures::join(const StepFigures& later) {
  busy += later.busy;
  peak = std::max(peak, later.peak);
  if (later.gradient_norm) gradient_norm = later.gradient_norm;
  begin = std::min(begin, later.begin);
  if (not_finite.empty()) not_finite = later.not_finite;
}

Seconds TimeSample::median() const { return run::median(kept_); }

Seconds TimeSample::quantile(double share) const {
  if (kept_.empty()) return Seconds(0);
  std::vector<Seconds> times = kept_;
  const auto rank = static_cast<std::ptrdiff_t>(share * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + rank, times.end());
  return times[static_cast<std::size_t>(rank)];
}

double TimeSample::share_above(Seconds limit) const {
  if (kept_.empty()) return 0;
  const auto above = std::ranges::count_if(kept_, [&](Seconds time) { return time > limit; });
  return static_cast<double>(above) / static_cast<double>(kept_.size());
}

Seconds median(std::vector<Seconds> times) {
  if (times.empty()) return Seconds(0);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace pp::run
