// The planner over a grid of machines, mini-batches, schedules and micro-batch counts: which combinations have
// a plan, what it promises, and why the others have none. Rows as values, as lines over the number of
// micro-batches, as CSV and JSON; scripts/draw-sweep draws them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "libplan/peers/strategy.h"
#include "libplan/report/throughput.h"
#include "libplan/search/planner.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {

/// Every cluster with every mini-batch, schedule and micro-batch count, rows in that order.
struct SweepSpec {
  std::vector<Cluster> clusters;
  std::vector<int> mini_batches;            ///< samples
  std::vector<std::string> schedules;       ///< `auto`, or names of schedule_table()
  std::vector<int> micro_batches;           ///< 0: the best of all
  PlanRequest request;                      ///< of all combinations; those three are replaced
  Strategy strategy = Strategy::automatic;  ///< narrows each combination's request
  TrainingBudget budget = {};
  int threads = 1;  ///< that plan at the same time; the rows do not depend on it
};

/// What the best plan of a combination promises.
struct SweepFigures {
  std::string stages;    ///< layers per stage: `7|5`
  std::string replicas;  ///< `1-1`
  Seconds step{};
  double samples_per_s = 0;
  double bubble_fraction = 0;
  Bytes peak;      ///< largest over the workers
  double gap = 0;  ///< to the certificate's lower bound
  Throughput throughput = {};
  int micro_batches = 1;
  bool operator==(const SweepFigures&) const = default;
};

/// Why a combination has no plan: nothing fits the limits, or the schedule refuses the request.
struct SweepFailure {
  enum class Kind { infeasible, refused };
  Kind kind = Kind::infeasible;
  std::string reason;  ///< one sentence, as the planner alone would say it
  bool operator==(const SweepFailure&) const = default;
};

struct SweepRow {
  int devices = 0;  ///< of tensor groups their GPUs
  std::string schedule;
  int micro_batches = 1;  ///< 0: the best of all were asked for, and there is no plan
  std::variant<SweepFigures, SweepFailure> result;
  int tensor_degree = 1;     ///< of the profile
  int cores_per_device = 0;  ///< of the profile; 0: GPUs
  bool estimated = false;    ///< the profile's times were not measured
  int mini_batch = 0;        ///< samples
  bool operator==(const SweepRow&) const = default;

  /// Null for a combination without a plan.
  const SweepFigures* figures() const { return std::get_if<SweepFigures>(&result); }
};

/// make_plan() for every combination, on `threads` threads. One that throws pp::Error of kind usage becomes a
/// row; of other errors the first in row order leaves, after the work in progress. Throws pp::Error (usage) for
/// an unknown schedule and a spec without a mini-batch, which no combination could answer.
std::vector<SweepRow> sweep(const Profile& profile, const SweepSpec& spec);

/// Of sweeps over the same grid, one for each of several profiles: of each combination the row with the least
/// step, of equals the first; where none has a plan the first.
std::vector<SweepRow> best_rows(std::span<const std::vector<SweepRow>> sweeps);

/// Per row whether it is on the Pareto front of time and money: no other row trains as many samples in less of
/// one and no more of the other, money being devices times time. Of rows equal in both the first. Rows without
/// a plan are not on it. O(n^2).
std::vector<bool> pareto_front(std::span<const SweepRow> rows);

/// `planned`, `infeasible` or `refused`.
std::string_view status_of(const SweepRow& row);

/// One record per row behind a header, fields quoted as in RFC 4180 where needed, lines that end with `\n`.
/// Seconds, bytes and fractions; what a row does not have is empty. Columns are only ever added at the end.
std::string sweep_csv(std::span<const SweepRow> rows);
/// An array of objects with the columns of the CSV as keys; what a row does not have is left out.
Json to_json(std::span<const SweepRow> rows);

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::SweepFailure::Kind> {
  static constexpr std::array table{std::pair{plan::SweepFailure::Kind::infeasible, "infeasible"sv},
                                    std::pair{plan::SweepFailure::Kind::refused, "refused"sv}};
};
}  // namespace pp

namespace pp::plan {}  // namespace pp::plan
