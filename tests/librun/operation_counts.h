// What the operations of a run ask for beside tensors, counted in an executable that links pp_operation_counts.
#pragma once

#include <cstdint>
#include <map>

#include "librun/run.h"

namespace pp::test {

struct OperationCounts {
  std::int64_t operations = 0;
  /// By this executable's own code, beside what tensors are made of there: a node for each input at which a
  /// graph is cut, and two handles for each tensor that comes from another worker.
  std::int64_t allocations = 0;
  std::int64_t locks = 0;  ///< of mutexes, by its own code
};

struct RunCounts {
  std::map<pp::plan::OpKind, OperationCounts> kinds;
  std::int64_t locks_of_many = 0;  ///< of all locks, those of mutexes that more than two workers take
  OperationCounts all() const;
};

/// Trains the plan and counts what its workers' threads do from the beginning of each operation to that of the
/// next, from step `from` to the last but one. For runs of one epoch, their length given in steps, of plans
/// without replicas and recomputation.
RunCounts count_operations(const pp::plan::Plan& plan, pp::run::RunOptions options, std::int64_t from);

}  // namespace pp::test
