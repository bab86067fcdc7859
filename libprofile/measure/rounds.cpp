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

std::size_t slot(PassKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

Rounds::Rounds(const StoppingRule& rule, const std::vector<bool>& usable) : rule_(rule), sizes_(usable.size()) {
  for (std::size_t i = 0; i < usable.size(); ++i) sizes_[i].finished = !usable[i];
}

std::optional<Visit> Rounds::next() {
  for (std::size_t tried = 0; tried < sizes_.size(); ++tried) {
    const std::size_t i = cursor_;
    cursor_ = (cursor_ + 1) % sizes_.size();
    const Size& size = sizes_[i];
    if (size.finished) continue;
    if (!size.warm) return Visit{.size = i, .dropped = rule_.warm_up_passes, .passes = 0};
    const double fitting = kVisitTime / std::max(size.pass_time, Seconds(1e-9));
    return Visit{.size = i,
                 .kind = static_cast<PassKind>(size.visits % kPassKinds),
                 .dropped = size.pass_time < kLongPass ? 1 : 0,
                 .passes = static_cast<int>(std::clamp(std::floor(fitting), 1.0, double{kMostPasses}))};
  }
  return std::nullopt;
}

void Rounds::report(const Visit& visit, std::span<const double> pass_seconds, Seconds duration) {
  Size& size = sizes_[visit.size];
  spent_ += duration;
  size.pass_time = duration / std::max(1, visit.dropped + visit.passes);
  if (!size.warm) {
    size.warm = true;
    return;
  }
  ++size.visits;
  size.spent += duration;
  std::vector<double>& samples = size.samples[slot(visit.kind)];
  samples.insert(samples.end(), pass_seconds.begin(), pass_seconds.end());
  size.finished = is_finished(size);
}

bool Rounds::is_finished(const Size& size) const {
  return std::all_of(size.samples.begin(), size.samples.end(), [&](const std::vector<double>& samples) {
    return decide(rule_, samples, size.spent) != Verdict::more;
  });
}

Seconds Rounds::remaining(const Size& size) const {
  if (size.finished) return Seconds(0);
  int missing = size.warm ? 0 : rule_.warm_up_passes;
  for (const std::vector<double>& samples : size.samples) {
    missing += std::max(0, kFewestSamples - static_cast<int>(samples.size()));
  }
  return std::max(rule_.budget - size.spent, missing * size.pass_time);
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
