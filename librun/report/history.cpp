#include "librun/report/history.h"

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

}  // namespace pp::run
