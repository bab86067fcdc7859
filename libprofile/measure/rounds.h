// Which micro-batch size is measured next, under which condition, and when all are done. A round visits
// every unfinished size once, so that a machine that slows down or speeds up hits all sizes alike;
// successive visits of a size take the conditions in turns. Pure: tests feed it times. What all passes share
// (types, autocast, where the samples come from) is RunnerOptions of model_runner.h.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "libprofile/core/units.h"
#include "libprofile/measure/statistics.h"

namespace pp::profile {

/// What a layer's times depend on beside the size of the micro-batch.
struct Condition {
  bool busy = true;           ///< all devices work at once; else the first one, while the others idle
  bool cut = false;           ///< each device runs a part of the model of its own; else each runs all of it
  bool after_update = false;  ///< the first pass of a step, when weights and gradients have left the caches
  bool operator==(const Condition&) const = default;
};

/// What a pass is divided into: each layer's forward and `full` backward; its forward, input gradient and
/// weight gradient (`split`); the `whole` model's forward and backward, without layer timers.
enum class Laps { full, split, whole };

/// A way to run a pass.
struct PassKind {
  Laps laps = Laps::full;
  Condition condition{};
  bool with_first = false;  ///< each of its visits records the first pass of a step as well
  bool operator==(const PassKind&) const = default;
};

inline constexpr PassKind kFull{.laps = Laps::full, .condition = {}, .with_first = true};
inline constexpr PassKind kSplit{.laps = Laps::split, .condition = {}, .with_first = true};
inline constexpr PassKind kWhole{.laps = Laps::whole};
inline constexpr std::array kPassKinds{kFull,
                                       kSplit,
                                       kWhole,
                                       PassKind{.laps = Laps::full, .condition = {.cut = true}},
                                       PassKind{.laps = Laps::split, .condition = {.cut = true}},
                                       PassKind{.laps = Laps::full, .condition = {.busy = false}},
                                       PassKind{.laps = Laps::split, .condition = {.busy = false}}};

/// What is measured where devices share the model as well, and where each holds all of it.
inline constexpr std::span<const PassKind> kKindsWithParts{kPassKinds};
inline constexpr std::span<const PassKind> kKindsOfWhole = kKindsWithParts.first(3);

struct Visit {
  std::size_t size = 0;  ///< which micro-batch size
  PassKind kind = kFull;
  int dropped = 0;            ///< passes run first and not recorded
  bool after_update = false;  ///< then an update, and one pass more, which is recorded as a step's first one
  int passes = 1;             ///< passes recorded
  int all() const { return dropped + (after_update ? 1 : 0) + passes; }
};

/// What one size takes at most when a pass takes `pass_time`: the budget, or the warm-up and the fewest passes
/// of each of `kinds`, with the first passes of steps, if that is more.
Seconds expected_time(const StoppingRule& rule, Seconds pass_time, std::span<const PassKind> kinds);

class Rounds {
 public:
  /// Per size a first guess of the time of one pass, for remaining(); nothing: the size cannot be measured (out
  /// of memory). `kinds` must outlive it.
  Rounds(const StoppingRule& rule, const std::vector<std::optional<Seconds>>& pass_times,
         std::span<const PassKind> kinds);

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

  /// In seconds. `kind`: one of those that are run.
  std::span<const double> samples(std::size_t size, const PassKind& kind) const;

 private:
  struct Size {
    bool finished = false;
    bool warm = false;
    int warm_ups = 0;
    int visits = 0;  ///< without the warm-up
    Seconds spent{};
    std::vector<Series> series;      ///< per kind
    std::vector<Seconds> pass_time;  ///< of the last visit of each kind, per pass
  };

  std::size_t slot(const PassKind& kind) const;
  std::size_t next_kind(const Size& size) const;
  Seconds remaining(const Size& size) const;

  StoppingRule rule_;
  std::span<const PassKind> kinds_;
  std::vector<Size> sizes_;
  std::size_t cursor_ = 0;
  Seconds spent_{};
};

}  // namespace pp::profile
