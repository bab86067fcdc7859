// Under which conditions passes are timed, as values: a list of them says what a profile measures. What all of
// its passes share (types, autocast, where the samples come from) is RunnerOptions of model_runner.h.
#pragma once

#include <array>
#include <span>

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

}  // namespace pp::profile
