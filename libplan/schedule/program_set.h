// What the validator and the simulator read: the finite lists of all workers, who holds which stage, and the
// rules that say which operation needs which.
#pragma once

#include <utility>
#include <vector>

#include "libplan/schedule/program.h"

namespace pp::plan {

/// Which operations a set has and what they need (libplan/schedule/README.md, Dependencies).
enum class RuleSet {
  standard,      ///< training: Dependencies in README.md
  forward_only,  ///< inference: F alone
  clocked,       ///< PARTIME: indices are clock steps; B mixes two frames
  swapped,       ///< Harmony: weights are loaded and evicted, F and B may be on different workers
  served,        ///< parameter server: U of a replica hands its gradient to the server, there is no AR
};

/// When a recomputation may start: once its forward has run, or not before the gradient has arrived for which
/// it is needed (a plain checkpoint function).
enum class RecomputeStart { early, late };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::RuleSet> {
  static constexpr std::array table{
      std::pair{plan::RuleSet::standard, "standard"sv},
      std::pair{plan::RuleSet::forward_only, "forward_only"sv}, std::pair{plan::RuleSet::clocked, "clocked"sv},
      std::pair{plan::RuleSet::swapped, "swapped"sv}, std::pair{plan::RuleSet::served, "served"sv}};
};
template <>
struct EnumNames<plan::RecomputeStart> {
  static constexpr std::array table{std::pair{plan::RecomputeStart::early, "early"sv},
                                    std::pair{plan::RecomputeStart::late, "late"sv}};
};
}  // namespace pp

namespace pp::plan {

/// Token generation: micro-batch t*groups + g is token t of sequence group g, and needs token t-1 from the last
/// stage: of its own group, or with a barrier of all groups. groups = 0: none.
struct TokenLoop {
  int groups = 0;
  bool barrier = false;
  bool operator==(const TokenLoop&) const = default;
};

/// Everything validity depends on. Programs are finite (streams expanded).
struct ProgramSet {
  std::vector<Program> workers;
  std::vector<std::vector<WorkerId>> stage_workers;  ///< per stage its replicas or copies
  std::vector<std::pair<StageId, StageId>> skips;  ///< besides the chain s -> s+1; each leads to a later stage
  std::vector<std::vector<StageId>> tied;          ///< per group, the stages that share a parameter, ascending
  int micro_batches = 1;                           ///< clocked: clock steps
  bool synchronous = true;       ///< one U per stage after all its backwards; else U follows each backward
  int backwards_per_update = 1;  ///< asynchronous: backwards of a worker from one U to the next
  bool stretch = false;          ///< asynchronous, by expand_stretch(): the last U of a replica may be missing
  RuleSet rules = RuleSet::standard;
  RecomputeStart recompute_start = RecomputeStart::early;
  TokenLoop tokens;
};

}  // namespace pp::plan
