// Which micro-batch size is measured next, how, and when all are done. A round visits every unfinished size
// once, so that a machine that slows down or speeds up hits all sizes alike; successive visits of a size
// alternate between full backward, split backward and the whole model without layer timers. Pure: tests feed it
// times.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "libprofile/core/units.h"
#include "libprofile/measure/stopping_rule.h"

namespace pp::profile {

/// How a pass is run: `full` times each layer's forward and full backward; `split` its forward, input gradient
/// and weight gradient; `whole` the model's forward and backward without layer timers. Then full and split
/// passes of which each device runs a part of the model, and those of the first device while the others idle.
enum class PassKind { full, split, whole, full_in_parts, split_in_parts, full_alone, split_alone };
inline constexpr int kPassKinds = 7;
inline constexpr int kKindsOfWhole = 3;  ///< where each device holds the whole model
constexpr bool is_split(PassKind kind) {
  return kind == PassKind::split || kind == PassKind::split_in_parts || kind == PassKind::split_alone;
}
constexpr bool is_alone(PassKind kind) { return kind == PassKind::full_alone || kind == PassKind::split_alone; }
/// Whether a step's first pass is recorded apart.
constexpr bool has_first(PassKind kind) { return kind == PassKind::full || kind == PassKind::split; }
constexpr bool in_parts(PassKind kind) {
  return kind == PassKind::full_in_parts || kind == PassKind::split_in_parts;
}

struct Visit {
  std::size_t size = 0;  ///< which micro-batch size
  PassKind kind = PassKind::full;
  int dropped = 0;            ///< passes run first and not recorded
  bool after_update = false;  ///< then an update, and one pass more, which is recorded as a step's first one
  int passes = 1;             ///< passes recorded
  int all() const { return dropped + (after_update ? 1 : 0) + passes; }
};

/// What one size takes at most when a pass takes `pass_time`: the budget, or the warm-up and the fewest passes
/// of each of the first `kinds` kinds, with the first passes of steps, if that is more.
Seconds expected_time(const StoppingRule& rule, Seconds pass_time, int kinds);

class Rounds {
 public:
  /// Per size a first guess of the time of one pass, for remaining(); nothing: the size cannot be measured (out
  /// of memory). Of the kinds only the first `kinds` are run.
  Rounds(const StoppingRule& rule, const std::vector<std::optional<Seconds>>& pass_times, int kinds);

  /// Nothing when every usable size is done. The first visits of a size are its warm-up, with `passes` 0: until
  /// one is hardly faster than what came before it.
  std::optional<Visit> next();
  /// Reports the visit that next() gave: the recorded passes' times in seconds, and the duration of the visit
  /// as a whole.
  void report(const Visit& visit, std::span<const double> pass_seconds, Seconds duration);

  /// Share of the work that is done, in [0, 1], and the time that the rest takes at most, from the durations so
  /// far.
  double done() const;
  Seconds remaining() const;

  std::span<const double> samples(std::size_t size, PassKind kind) const;

 private:
  struct Size {
    bool finished = false;
    bool warm = false;
    int warm_ups = 0;
    int visits = 0;  ///< without the warm-up
    Seconds spent{};
    std::array<std::vector<double>, kPassKinds> samples, visit_medians;
    std::array<Seconds, kPassKinds> spent_on{};   ///< of `spent`, on each kind
    std::array<Seconds, kPassKinds> pass_time{};  ///< of the last visit of each kind, per pass
  };

  std::size_t next_kind(const Size& size) const;
  bool lacks_samples(const Size& size, std::size_t kind) const;
  bool is_finished(const Size& size) const;
  bool is_precise(const Size& size, std::size_t kind) const;
  Seconds remaining(const Size& size) const;

  StoppingRule rule_;
  std::size_t kinds_;
  std::vector<Size> sizes_;
  std::size_t cursor_ = 0;
  Seconds spent_{};
};

}  // namespace pp::profile
