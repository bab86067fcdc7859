// Weight versions of asynchronous programs: which version each forward runs on under a policy, whether that
// version exists and may still be kept.
#pragma once

#include <vector>

#include "libplan/schedule/program_set.h"
#include "libplan/schedule/schedule.h"

namespace pp::plan {

/// Whether updates come every few micro-batches (ScheduleRequest::micro_batches), and not after each: for the
/// versions' sake, no fewer than stages.
bool aggregates(WeightPolicy policy);
/// Whether they may come every few micro-batches.
bool groups(const ScheduleRow& schedule, WeightPolicy policy);
/// Whether it is defined for pipelines without replicas and under the windows `win` alone.
bool needs_straight(WeightPolicy policy);
/// Whether replicas of the whole model train around a parameter server (RuleSet::served).
bool is_served(WeightPolicy policy);
/// Of these whether gradients go to a server; hogwild's replicas change memory that they share.
bool has_server(WeightPolicy policy);
/// Whether a micro-batch in flight keeps the weights of its forward.
bool holds_versions(WeightPolicy policy);

/// Weight policy predict: how many updates forwards and backwards of a stage look ahead of the newest weights,
/// so that all stages see a micro-batch with the weights of one time (SpecTrain, Chen et al., 2018,
/// section 4.3). With `per_update` micro-batches an update, the same time in updates begun: a forward's is the
/// first one's of its mini-batch, which the others share (XPipe, Guan et al., 2019, section 3.3; where it
/// rounds we round up, so that one stage and the last of two look ahead by nothing, as SpecTrain's).
struct LookAhead {
  int forward = 0, backward = 0;
  bool operator==(const LookAhead&) const = default;
};
LookAhead look_ahead(int stage, int stages, int per_update = 1);

/// Weight versions that a stage keeps, the newest among them, when its replicas have `window` micro-batches in
/// flight in a pipeline of `stages`: what live_versions() counts for the windows `win`. `per_update`:
/// micro-batches, read by predict.
int versions_kept(WeightPolicy policy, int window, int stages, int per_update);

/// Largest number of live versions of each stage, over its workers: the newest and those that micro-batches in
/// flight hold. Version n is made by the n-th U. `set` must be asynchronous and valid; its `micro_batches` are
/// the stream's length. O(operations).
///
/// stash: forward and backward on the newest at the forward. vertical_sync: version max(0, j-(S-1)) of
/// micro-batch j on every stage. two_buffered: version max(0, j/m - 1), m micro-batches per update. macrobatch:
/// as stash, at most two versions. latest: the newest, nothing is kept. predict: the newest, one buffer for
/// what is predicted where the stage looks ahead, and one for what a mini-batch's micro-batches share; no
/// replicas. Throws pp::Error (data) that names the
/// operation, the version it needs and those that exist: `worker 0, operation 5 (F0.4): needs version 1 of
/// stage 0, the newest is 0`.
std::vector<int> live_versions(const ProgramSet& set, WeightPolicy policy);

}  // namespace pp::plan
