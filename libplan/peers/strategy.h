// Ways to choose a partition by name: our search, or what a trainer without a planner (layers balanced by one
// number each) or another planner would do. A baseline narrows the request; schedule, micro-batches and price
// come from the same planner for all.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "libplan/search/planner.h"
#include "libprofile/core/enum_names.h"

namespace pp::plan {

enum class Strategy {
  automatic,
  manual,
  data_parallel,
  straight,
  balance_by_time,
  balance_by_size,
  block_by_time,
  block_by_size,
  lingvo,
  pipedream_code,
  pipedream_paper,
  dnn_partitioning,
  piper,
  dapple
};

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::Strategy> {
  static constexpr std::array table{std::pair{plan::Strategy::automatic, "auto"sv},
                                    std::pair{plan::Strategy::manual, "manual"sv},
                                    std::pair{plan::Strategy::data_parallel, "data-parallel"sv},
                                    std::pair{plan::Strategy::straight, "straight"sv},
                                    std::pair{plan::Strategy::balance_by_time, "balance-by-time"sv},
                                    std::pair{plan::Strategy::balance_by_size, "balance-by-size"sv},
                                    std::pair{plan::Strategy::block_by_time, "block-by-time"sv},
                                    std::pair{plan::Strategy::block_by_size, "block-by-size"sv},
                                    std::pair{plan::Strategy::lingvo, "lingvo"sv},
                                    std::pair{plan::Strategy::pipedream_code, "pipedream-code"sv},
                                    std::pair{plan::Strategy::pipedream_paper, "pipedream-paper"sv},
                                    std::pair{plan::Strategy::dnn_partitioning, "dnn-partitioning"sv},
                                    std::pair{plan::Strategy::piper, "piper"sv},
                                    std::pair{plan::Strategy::dapple, "dapple"sv}};
};
}  // namespace pp

namespace pp::plan {

/// The request with what `strategy` leaves open:
/// - data-parallel: one stage on as many devices as there are micro-batches for; straight: stages without
/// replicas;
/// - balance, block, lingvo: as many stages as asked for, else as devices and layers allow, one device each,
/// cut in
///   file order. By time: forward plus backward; by size: output bytes + k * parameter bytes (k = 2 for sgd, 4
///   for adamw, torchgpipe's rule); lingvo: FLOPs of the forward pass, or its time where a profile has none;
/// - a peer's name: stages and replicas of that planner under its own cost model, on the machine of `cluster`;
/// - manual: the cuts must be given.
/// Throws pp::Error (usage) when the strategy has no answer: an empty block, a peer that finds nothing.
PlanRequest narrowed(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                     Strategy strategy);

/// The largest block is as small as possible; among those the earliest cuts. `blocks` is at most the number of
/// costs, and no block is empty. The exact form of what torchgpipe (Kim et al., arXiv 2004.09910) and GPipe
/// (Huang et al., NeurIPS'19) approximate.
std::vector<int> balance_exactly(std::span<const double> costs, int blocks);

/// Block partition of Barany and Grinberg ("Block Partitions of Sequences", arXiv 1308.2452) as torchgpipe uses
/// it, on costs scaled to 0..1: layers move towards the smallest block until no two blocks differ by more than
/// the largest scaled cost. Not optimal; a block can be empty. As it is used, with size and choice of the
/// largest block out of date, it may go on for ever: no blocks after ten moves per layer and block
/// (PipeDream's gnmt in 19 blocks ends after 148 moves of 18,050).
std::vector<int> block_partition(std::span<const double> costs, int blocks);

/// Lingvo (Shen et al., arXiv 1902.08295): a layer goes where the running share of the total, itself included,
/// points to. A block can be empty.
std::vector<int> lingvo_partition(std::span<const double> costs, int blocks);

}  // namespace pp::plan
