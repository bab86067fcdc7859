#include "libprofile/measure/rounds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "libprofile/measure/statistics.h"

namespace pp::profile {
namespace {

/// A visit is long enough that starting the devices together does not matter, and short enough that a round
/// over all sizes stays within one mood of the machine.
constexpr Seconds kVisitTime{0.03};
constexpr int kMostPasses = 16;
/// A pass this long fills the caches by itself; before a shorter one, one pass is dropped because another size
/// ran before.
constexpr Seconds kLongPass{0.05};

/// Of each kind, what even a spent budget does not save. A long pass is a visit of its own, so these are as
/// many visits: a neighbour that disturbs three of them does not move the median.
constexpr int kFewestPasses = 8;

/// Of kinds with a step's first pass, which a visit has one of, so many even then: their median is the time of
/// the first micro-batch of every step.
constexpr int kFewestFirst = kFewestSamples;

/// A visit that is faster by more than this share than the one before was still warming up.
constexpr double kStillWarming = 0.1;
constexpr int kMostWarmUps = 4;

std::size_t slot(PassKind kind) { return static_cast<std::size_t>(kind); }

Visit visit_of(std::size_t size, PassKind kind, Seconds pass_time) {
  const double fitting = kVisitTime / std::max(pass_time, Seconds(1e-9));
  const bool brief = pass_time < kLongPass;
  return {.size = size,
          .kind = kind,
          .dropped = brief ? 1 : 0,
          .after_update = brief || has_first(kind),
          .passes = static_cast<int>(std::clamp(std::floor(fitting), 1.0, double{kMostPasses}))};
}

/// Of a kind that so many visits have left so many passes of.
Seconds time_of_missing(PassKind kind, std::size_t passes, std::size_t visits, Seconds pass_time) {
  const Visit visit = visit_of(0, kind, pass_time);
  const int missing = std::max(0, kFewestPasses - static_cast<int>(passes));
  const int first = has_first(kind) ? std::max(0, kFewestFirst - static_cast<int>(visits)) : 0;
  return std::max((missing + visit.passes - 1) / visit.passes, first) * visit.all() * pass_time;
}

}  // namespace

Seconds expected_time(const StoppingRule& rule, Seconds pass_time, int kinds) {
  Seconds fewest = rule.warm_up_passes * pass_time;
  for (int kind = 0; kind < kinds; ++kind)
    fewest += time_of_missing(static_cast<PassKind>(kind), 0, 0, pass_time);
  return std::max(rule.budget, fewest);
}

Rounds::Rounds(const StoppingRule& rule, const std::vector<std::optional<Seconds>>& pass_times, int kinds)
    : rule_(rule), kinds_(static_cast<std::size_t>(kinds)), sizes_(pass_times.size()) {
  for (std::size_t i = 0; i < pass_times.size(); ++i) {
    sizes_[i].finished = !pass_times[i].has_value();
    sizes_[i].pass_time.fill(pass_times[i].value_or(Seconds(0)));
  }
}

std::optional<Visit> Rounds::next() {
  for (std::size_t tried = 0; tried < sizes_.size(); ++tried) {
    const std::size_t i = cursor_;
    cursor_ = (cursor_ + 1) % sizes_.size();
    const Size& size = sizes_[i];
    if (size.finished) continue;
    if (!size.warm) return Visit{.size = i, .dropped = rule_.warm_up_passes, .passes = 0};
    const std::size_t kind = next_kind(size);
    return visit_of(i, static_cast<PassKind>(kind), size.pass_time[kind]);
  }
  return std::nullopt;
}

void Rounds::report(const Visit& visit, std::span<const double> pass_seconds, Seconds duration) {
  Size& size = sizes_[visit.size];
  spent_ += duration;
  const Seconds pass_time = duration / std::max(1, visit.all());
  if (!size.warm) {
    const Seconds before = size.pass_time.front();
    size.pass_time.fill(pass_time);
    size.warm = ++size.warm_ups == kMostWarmUps || pass_time >= (1 - kStillWarming) * before;
    return;
  }
  ++size.visits;
  size.spent += duration;
  const std::size_t kind = slot(visit.kind);
  size.pass_time[kind] = pass_time;
  size.samples[kind].insert(size.samples[kind].end(), pass_seconds.begin(), pass_seconds.end());
  size.visit_medians[kind].push_back(summarise(pass_seconds).median.count());
  size.spent_on[kind] += duration;
  size.finished = is_finished(size);
}

/// Kinds take turns; once the budget is spent, those that lack samples.
std::size_t Rounds::next_kind(const Size& size) const {
  std::size_t kind = static_cast<std::size_t>(size.visits) % kinds_;
  if (size.spent < rule_.budget) return kind;
  while (!lacks_samples(size, kind)) kind = (kind + 1) % kinds_;  // else the size were finished
  return kind;
}

bool Rounds::lacks_samples(const Size& size, std::size_t kind) const {
  return size.samples[kind].size() < kFewestPasses ||
         (has_first(static_cast<PassKind>(kind)) && size.visit_medians[kind].size() < kFewestFirst);
}

bool Rounds::is_finished(const Size& size) const {
  for (std::size_t kind = 0; kind < kinds_; ++kind) {
    if (lacks_samples(size, kind)) return false;
  }
  if (size.spent >= rule_.budget) return true;
  for (std::size_t kind = 0; kind < kinds_; ++kind) {
    if (!is_precise(size, kind)) return false;
  }
  return true;
}

bool Rounds::is_precise(const Size& size, std::size_t kind) const {
  const std::vector<double>& medians = size.visit_medians[kind];
  return static_cast<int>(medians.size()) >= rule_.min_visits && size.spent_on[kind] >= rule_.min_time &&
         relative_half_width(medians) <= rule_.precision;
}

Seconds Rounds::remaining(const Size& size) const {
  if (size.finished) return Seconds(0);
  if (!size.warm) return expected_time(rule_, size.pass_time.front(), static_cast<int>(kinds_));
  Seconds missing{};
  for (std::size_t kind = 0; kind < kinds_; ++kind) {
    missing += time_of_missing(static_cast<PassKind>(kind), size.samples[kind].size(),
                               size.visit_medians[kind].size(), size.pass_time[kind]);
  }
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

std::span<const double> Rounds::samples(std::size_t size, PassKind kind) const {
  return sizes_[size].samples[slot(kind)];
}

}  // namespace pp::profile
