#include "libplan/draw/timeline_rows.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <set>
#include <span>
#include <utility>

#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

Seconds length(const OpEvent* op) { return op->end - op->start; }

TimelineBox joined(std::span<const OpEvent* const> run) {
  TimelineBox box{run.front()->start, run.back()->end, {}, run.front(), static_cast<int>(run.size())};
  const auto busy = [&](const OpEvent* op) -> Seconds& { return box.busy[at(op->op.kind)]; };
  for (const OpEvent* op : run) busy(op) += length(op);
  for (const OpEvent* op : run) {
    if (std::pair(busy(op), length(op)) > std::pair(busy(box.op), length(box.op))) box.op = op;
  }
  return box;
}

/// Ticks that a length of a whole number of steps should not lose to rounding.
constexpr double kSlack = 1e-9;

TimeAxis unit_for(Seconds length) {
  if (length.count() < 1e-6) return {"ns", 1e-9};
  if (length.count() < 1e-3) return {"us", 1e-6};
  if (length.count() < 10) return {"ms", 1e-3};
  return {"s", 1};
}

}  // namespace

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

std::vector<TimelineBox> timeline_boxes(const TimelineRow& row, Seconds shortest) {
  std::vector<TimelineBox> boxes;
  for (std::size_t begin = 0; begin < row.ops.size();) {
    const Seconds start = row.ops[begin]->start;
    std::size_t end = begin + 1;
    if (length(row.ops[begin]) < shortest) {
      while (end < row.ops.size() && row.ops[end]->end - start < shortest) ++end;
    }
    boxes.push_back(joined(std::span(row.ops).subspan(begin, end - begin)));
    begin = end;
  }
  return boxes;
}

std::string TimeAxis::label(int tick) const {
  std::array<char, 64> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), time(tick).count() / unit_seconds,
                    std::chars_format::fixed, decimals);
  return error == std::errc{} ? std::string(text.data(), end) : "";
}

TimeAxis time_axis(Seconds length, int most) {
  TimeAxis axis = unit_for(length);
  const double units = length.count() / axis.unit_seconds;
  if (units <= 0) return axis;
  const auto ticks_after_first = [&](double step) { return static_cast<int>(units / step * (1 + kSlack)); };
  const int most_after_first = std::max(most - 1, 2);  // some 1-2-5 step always fits twice at most, and once
  double power = std::pow(10, std::floor(std::log10(units / (most_after_first + 1))));
  double step = 0;
  for (; step == 0; power *= 10) {
    for (const double factor : {5.0, 2.0, 1.0}) {
      if (ticks_after_first(factor * power) <= most_after_first) step = factor * power;
    }
  }
  axis.step = Seconds(step * axis.unit_seconds);
  axis.last = ticks_after_first(step);
  axis.decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + kSlack)));
  return axis;
}

}  // namespace pp::plan
