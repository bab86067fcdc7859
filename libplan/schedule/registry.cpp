#include <string>

#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

using enum WeightPolicy;

const std::vector<ScheduleRow> kTable{
    {.name = "naive", .summary = "one micro-batch at a time", .needs = "M = 1", .generate = generate_naive},
    {.name = "data-parallel",
     .summary = "the whole model on every worker",
     .needs = "one stage",
     .replication = Replication::any,
     .planned = false,
     .generate = generate_data_parallel},
    {.name = "gpipe",
     .summary = "all forwards, then all backwards",
     .replication = Replication::any,
     .candidate = true,
     .generate = generate_gpipe},
    {.name = "gpipe-reverse",
     .summary = "gpipe, backwards last to first",
     .replication = Replication::any,
     .generate = generate_gpipe_reverse},
    {.name = "1f1b",
     .summary = "one forward, one backward in turn",
     .replication = Replication::any,
     .candidate = true,
     .generate = generate_one_forward_one_backward},
    {.name = "hybrid",
     .summary = "1f1b, whole pipelines side by side",
     .needs = "equal replicas",
     .replication = Replication::equal,
     .planned = false,
     .generate = generate_one_forward_one_backward},
    {.name = "dapple-pa",
     .summary = "1f1b, replicas split micro-batches",
     .replication = Replication::any,
     .planned = false,
     .generate = generate_dapple_pa},
    {.name = "dapple-pb",
     .summary = "dapple-pa with twice the window",
     .replication = Replication::any,
     .planned = false,
     .generate = generate_dapple_pb},
    {.name = "interleaved",
     .summary = "1f1b over several stages per worker",
     .needs = "v > 1, M % K = 0",
     .chunks = Chunks::several,
     .generate = generate_interleaved},
    {.name = "looped-bfs",
     .summary = "breadth first over several stages per worker",
     .needs = "v > 1",
     .chunks = Chunks::several,
     .generate = generate_looped_bfs},
    {.name = "zb-h1", .summary = "1f1b, weight gradients fill the bubble", .generate = generate_zb_h1},
    {.name = "zb-h2", .summary = "zb-h1 with twice the window", .generate = generate_zb_h2},
    {.name = "auto-zb",
     .summary = "the best order found for the real costs",
     .needs = "costs",
     .generate = nullptr},
    {.name = "zb-v",
     .summary = "zero bubble, two stages per worker in a V",
     .needs = "v = 2",
     .chunks = Chunks::two,
     .generate = generate_zb_v},
    {.name = "dualpipe-v",
     .summary = "forward beside backward, stages in a V",
     .needs = "v = 2, M >= 2K",
     .chunks = Chunks::two,
     .generate = generate_dualpipe_v},
    {.name = "chimera",
     .summary = "two copies of the model in opposite directions",
     .needs = "K even, M % K = 0",
     .generate = generate_chimera},
    {.name = "pipedream",
     .summary = "1f1b without flush, stashed weights",
     .needs = "M = 1",
     .synchronous = false,
     .replication = Replication::any,
     .policies = {stash, vertical_sync, latest, two_buffered, macrobatch},
     .generate = generate_pipedream},
    {.name = "vertical-sync",
     .summary = "pipedream, one version on all stages",
     .needs = "M = 1, no replicas",
     .synchronous = false,
     .policies = {vertical_sync},
     .planned = false,
     .generate = generate_pipedream},
    {.name = "2bw",
     .summary = "pipedream with two weight versions",
     .needs = "M >= K",
     .synchronous = false,
     .replication = Replication::equal,
     .policies = {two_buffered},
     .planned = false,
     .generate = generate_pipedream},
    {.name = "macrobatch",
     .summary = "pipedream, an update every few micro-batches",
     .needs = "M >= K",
     .synchronous = false,
     .replication = Replication::equal,
     .policies = {macrobatch},
     .planned = false,
     .generate = generate_pipedream},
    {.name = "partime",
     .summary = "one frame per clock step, online updates",
     .synchronous = false,
     .rules = RuleSet::clocked,
     .policies = {latest},
     .planned = false,
     .generate = generate_partime},
    {.name = "inference",
     .summary = "forwards only",
     .rules = RuleSet::forward_only,
     .replication = Replication::any,
     .planned = false,
     .generate = generate_inference},
    {.name = "generation",
     .summary = "forwards only, token by token",
     .rules = RuleSet::forward_only,
     .planned = false,
     .generate = generate_generation},
    {.name = "harmony-pp",
     .summary = "weights swapped, packs go round the workers",
     .rules = RuleSet::swapped,
     .chunks = Chunks::several,
     .planned = false,
     .generate = generate_harmony_pp},
    {.name = "harmony-dp",
     .summary = "weights swapped, data parallel",
     .rules = RuleSet::swapped,
     .chunks = Chunks::several,
     .planned = false,
     .generate = generate_harmony_dp},
    {.name = "custom",
     .summary = "programs written elsewhere",
     .needs = "a CSV file",
     .chunks = Chunks::several,
     .generate = nullptr},
};

}  // namespace

const std::vector<ScheduleRow>& schedule_table() { return kTable; }

const ScheduleRow* find_schedule(std::string_view name) {
  for (const ScheduleRow& row : schedule_table()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const ScheduleRow& require_schedule(std::string_view name) {
  if (const ScheduleRow* row = find_schedule(name)) return *row;
  std::string names;
  for (const ScheduleRow& row : schedule_table()) names.append(names.empty() ? "" : ", ").append(row.name);
  throw Error(ErrorKind::usage, "schedule: unknown name \"" + std::string(name) + "\"; use one of " + names);
}

}  // namespace pp::plan
