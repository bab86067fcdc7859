#include "libprofile/measure/rounds.h"

#include <algorithm>
#include <cmath>

namespace pp::profile {

namespace {

/// A visit is long enough that starting the devices together does not matter, and short enough that a round
/// over all sizes stays within one mood of the machine.
constexpr Seconds kVisitTime{0.03};
constexpr int kMostPasses = 16;
/// A pass this long fills the caches by itself; before a shorter one, one pass is dropped because another size
/// ran before.
constexpr Seconds kLongPass{0.05};

/// A visit that is faster by more than this share than the one before was still warming up.
constexpr double kStillWarming = 0.1;
constexpr int kMostWarmUps = 4;

Visit visit_of(std::size_t size, const PassKind& kind, Seconds pass_time) {
  const double fitting = kVisitTime / std::max(pass_time, Seconds(1e-9));
  const bool brief = pass_time < kLongPass;
  return {.size = size,
          .kind = kind,
          .dropped = brief ? 1 : 0,
          .after_update = brief || kind.with_first,
          .passes = static_cast<int>(std::clamp(std::floor(fitting), 1.0, double{kMostPasses}))};
}

Seconds time_of_missing(const StoppingRule& rule, const PassKind& kind, const Series& series,
                        Seconds pass_time) {
  const Visit visit = visit_of(0, kind, pass_time);
  const int visits = (missing_samples(rule, series) + visit.passes - 1) / visit.passes;
  return std::max(visits, missing_firsts(rule, series)) * visit.all() * pass_time;
}

}  // namespace

Seconds expected_time(const StoppingRule& rule, Seconds pass_time, std::span<const PassKind> kinds) {
  Seconds fewest = rule.warm_up_passes * pass_time;
  for (const PassKind& kind : kinds)
    fewest += time_of_missing(rule, kind, {.with_first = kind.with_first}, pass_time);
  return std::max(rule.budget, fewest);
}

Rounds::Rounds(const StoppingRule& rule, const std::vector<std::optional<Seconds>>& pass_times,
               std::span<const PassKind> kinds)
    : rule_(rule), kinds_(kinds), sizes_(pass_times.size()) {
  for (std::size_t i = 0; i < pass_times.size(); ++i) {
    sizes_[i].finished = !pass_times[i].has_value();
    sizes_[i].pass_time.assign(kinds.size(), pass_times[i].value_or(Seconds(0)));
    for (const PassKind& kind : kinds) sizes_[i].series.push_back({.with_first = kind.with_first});
  }
}

std::size_t Rounds::slot(const PassKind& kind) const {
  return static_cast<std::size_t>(std::ranges::find(kinds_, kind) - kinds_.begin());
}

std::optional<Visit> Rounds::next() {
  for (std::size_t tried = 0; tried < sizes_.size(); ++tried) {
    const std::size_t i = cursor_;
    cursor_ = (cursor_ + 1) % sizes_.size();
    const Size& size = sizes_[i];
    if (size.finished) continue;
    if (!size.warm) return Visit{.size = i, .dropped = rule_.warm_up_passes, .passes = 0};
    const std::size_t kind = next_kind(size);
    return visit_of(i, kinds_[kind], size.pass_time[kind]);
  }
  return std::nullopt;
}

void Rounds::report(const Visit& visit, std::span<const double> pass_seconds, Seconds duration) {
  Size& size = sizes_[visit.size];
  spent_ += duration;
  const Seconds pass_time = duration / std::max(1, visit.all());
  if (!size.warm) {
    const Seconds before = size.pass_time.front();
    std::ranges::fill(size.pass_time, pass_time);
    size.warm = ++size.warm_ups == kMostWarmUps || pass_time >= (1 - kStillWarming) * before;
    return;
  }
  ++size.visits;
  size.spent += duration;
  const std::size_t kind = slot(visit.kind);
  size.pass_time[kind] = pass_time;
  size.series[kind].add(pass_seconds, duration);
  size.finished = is_enough(rule_, size.series, size.spent);
}

/// Kinds take turns; once the budget is spent, those that lack samples.
std::size_t Rounds::next_kind(const Size& size) const {
  std::size_t kind = static_cast<std::size_t>(size.visits) % kinds_.size();
  if (size.spent < rule_.budget) return kind;
  while (!lacks_samples(rule_, size.series[kind]))
    kind = (kind + 1) % kinds_.size();  // one does, else finished
  return kind;
}

Seconds Rounds::remaining(const Size& size) const {
  if (size.finished) return Seconds(0);
  if (!size.warm) return expected_time(rule_, size.pass_time.front(), kinds_);
  Seconds missing{};
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
    missing += time_of_missing(rule_, kinds_[kind], size.series[kind], size.pass_time[kind]);
  return std::max(rule_.budget - size.spent, missing);
}

Seconds Rounds::remaining() const {
  Seconds total{};
  for (const Size& size : sizes_) total += remaining(size);
  return total;
}

double Rounds::done() const {
  const Seconds rest = remaining();
  return rest.count() <= 0 ? 1.0 : spent_ / (spent_ + rest);
}

std::span<const double> Rounds::samples(std::size_t size, const PassKind& kind) const {
  return sizes_[size].series[slot(kind)].samples;
}

}  // namespace pp::profile
