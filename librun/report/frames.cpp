#include "librun/report/frames.h"

#include <algorithm>
#include <map>
#include <vector>

namespace pp::run {

FramesReport frames_report(std::span<const WorkerRecord* const> workers, int stages) {
  std::map<std::int64_t, Seconds> entered, left;  // by frame of the training
  for (const WorkerRecord* worker : workers) {
    for (const OpRecord& op : worker->ops) {
      if (op.event.op.kind != plan::OpKind::forward) continue;
      const int stage = number(op.event.op.stage);
      if (stage == 0) entered[op.step] = op.event.start;
      if (stage == stages - 1) left[op.step] = op.event.end;
    }
  }
  FramesReport report;
  std::vector<Seconds> latencies;
  for (const auto& [frame, end] : left) {
    const auto first = entered.find(frame);
    if (first == entered.end()) continue;
    latencies.push_back(end - first->second);
    const auto behind = std::ranges::count_if(std::next(first), entered.end(),
                                              [&](const auto& other) { return other.second < end; });
    report.delay = std::max<std::int64_t>(report.delay, behind);
  }
  report.latency = median(std::move(latencies));
  return report;
}

}  // namespace pp::run
