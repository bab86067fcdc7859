// Why a step does not take what the plan promised.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libplan/schedule/instructions.h"
#include "libprofile/core/index.h"
#include "libprofile/core/units.h"

namespace pp::run {

struct RunReport;
struct StepRecord;
struct WorkerRecord;

/// What the instructions of one kind, worker and stage take in a step, waiting included: those of a worker add
/// up to its step.
struct InstructionReport {
  WorkerId worker{};
  StageId stage{};
  plan::InstructionKind kind{};
  Seconds predicted{};  ///< 0: the plan does not know it
  Seconds median{};     ///< measured; streams: mean
  bool operator==(const InstructionReport&) const = default;
};

/// What is between the promised step and the median one, and what the median leaves out.
struct Deviation {
  /// Of the difference between measured and promised step: what the operations' measured times make of it when
  /// they are simulated in place of those that the plan carries. What the next member leaves is messages and
  /// waiting. None: the plan carries no times, or more than kMostOps operations.
  std::optional<Seconds> operations = std::nullopt;
  /// Of the same difference: how much longer the busiest worker is busy in a step than its operations are by
  /// their medians. At least 0.
  Seconds above_medians{};
  std::int64_t operation_count = 0;
  std::int64_t interrupted = 0;    ///< operations that took more than twice the median of their kind and stage
  Seconds mean_excess{};           ///< mean of the steps whose median the step is, beyond it
  std::int64_t first_steps = 0;    ///< of the run, which find cold caches and ask for their memory
  Seconds first_excess{};          ///< what they took beyond as many median ones
  std::int64_t partial_steps = 0;  ///< whose mini-batch had fewer samples than most: the last of an epoch
  Seconds partial_step{};          ///< their median
  bool operator==(const Deviation&) const = default;

  static constexpr std::size_t kMostOps = 100000;
};

/// `report` has its plan, step and op times; `steps` are the last ones, from the run's first one on when they
/// are as many as report.steps.
Deviation deviation_of(const RunReport& report, std::span<const StepRecord> steps,
                       std::span<const WorkerRecord* const> workers);

/// By worker, stage and kind; `report` as for deviation_of(). Without predictions where the plan carries no
/// times, or more than kMostOps operations.
std::vector<InstructionReport> instruction_report(const RunReport& report,
                                                  std::span<const WorkerRecord* const> workers);

/// A sentence for each cause that is worth one hundredth of the step; none: the step is as promised, or there
/// was none.
std::vector<std::string> deviation_lines(const RunReport& report);

}  // namespace pp::run
