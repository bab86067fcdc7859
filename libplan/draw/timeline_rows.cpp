#include "libplan/draw/timeline_rows.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

namespace pp::plan {

int TimelineRow::chunk(StageId stage) const {
  const auto position = std::ranges::lower_bound(stages, stage) - stages.begin();
  return static_cast<int>(std::clamp<std::ptrdiff_t>(position, 0, std::ssize(stages) - 1));
}

std::vector<TimelineRow> timeline_rows(const SimulationResult& result) {
  std::vector<TimelineRow> rows(result.busy.size());
  std::vector<std::set<StageId>> computed(rows.size()), named(rows.size());
  for (const OpEvent& event : result.ops) {
    const std::size_t worker = index(event.worker);
    rows[worker].ops.push_back(&event);
    rows[worker].busy += event.end - event.start;
    auto& stages = has_micro_batch(event.op.kind) ? computed : named;
    stages[worker].insert(event.op.stage);
  }
  for (std::size_t w = 0; w < rows.size(); ++w) {
    const std::set<StageId>& stages = computed[w].empty() ? named[w] : computed[w];
    rows[w].stages.assign(stages.begin(), stages.end());
  }
  return rows;
}

int most_chunks(const std::vector<TimelineRow>& rows) {
  std::size_t most = 1;
  for (const TimelineRow& row : rows) most = std::max(most, row.stages.size());
  return static_cast<int>(most);
}

std::vector<OpKind> kinds_of(const SimulationResult& result) {
  std::set<OpKind> kinds;
  for (const OpEvent& event : result.ops) kinds.insert(event.op.kind);
  return {kinds.begin(), kinds.end()};
}

double idle_share(const TimelineRow& row, Seconds length) {
  return length.count() > 0 ? 1 - row.busy / length : 0;
}

std::string percent_text(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

}  // namespace pp::plan
