#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/generators.h"
#include "libprofile/core/error.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

using enum WeightPolicy;

const std::vector<ScheduleRow> kTable{
    {.name = "naive",
     .summary = "one micro-batch at a time",
     .needs = "M = 1",
     .closed_form = gpipe_form,
     .generate = generate_naive},
    {.name = "data-parallel",
     .summary = "the whole model on every worker",
     .needs = "one stage",
     .replication = Replication::any,
     .one_stage = true,
     .generate = generate_data_parallel},
    {.name = "gpipe",
     .summary = "all forwards, then all backwards",
     .replication = Replication::any,
     .candidate = true,
     .keeps_all = true,
     .filling = Filling::all_workers,
     .closed_form = gpipe_form,
     .generate = generate_gpipe},
    {.name = "gpipe-reverse",
     .summary = "gpipe, backwards last to first",
     .replication = Replication::any,
     .keeps_all = true,
     .last_first = true,
     .filling = Filling::all_workers,
     .closed_form = gpipe_form,
     .generate = generate_gpipe_reverse},
    {.name = "1f1b",
     .summary = "one forward, one backward in turn",
     .replication = Replication::any,
     .candidate = true,
     .windowed = true,
     .filling = Filling::all_workers,
     .closed_form = one_forward_one_backward_form,
     .bubble_time = one_forward_one_backward_bubble,
     .generate = generate_one_forward_one_backward},
    {.name = "hybrid",
     .summary = "1f1b, whole pipelines side by side",
     .needs = "equal replicas",
     .replication = Replication::equal,
     .windowed = true,
     .closed_form = one_forward_one_backward_form,
     .generate = generate_one_forward_one_backward},
    {.name = "dapple-pa",
     .summary = "1f1b, replicas split micro-batches",
     .replication = Replication::any,
     .splits = true,
     .limited = true,
     .filling = Filling::all_workers,
     .closed_form = one_forward_one_backward_form,
     .generate = generate_dapple_pa},
    {.name = "dapple-pb",
     .summary = "dapple-pa with twice the window",
     .replication = Replication::any,
     .wide = true,
     .splits = true,
     .limited = true,
     .closed_form = wide_form,
     .generate = generate_dapple_pb},
    {.name = "interleaved",
     .summary = "1f1b over several stages per worker",
     .needs = "v > 1, M % K = 0",
     .chunks = Chunks::several,
     .replication = Replication::pipelines,
     .candidate = true,
     .closed_form = interleaved_form,
     .bubble_time = interleaved_bubble,
     .generate = generate_interleaved},
    {.name = "looped-bfs",
     .summary = "breadth first over several stages per worker",
     .needs = "v > 1",
     .chunks = Chunks::several,
     .replication = Replication::pipelines,
     .candidate = true,
     .closed_form = looped_bfs_form,
     .generate = generate_looped_bfs},
    {.name = "zb-h1",
     .summary = "1f1b, weight gradients fill the bubble",
     .replication = Replication::pipelines,
     .candidate = true,
     .split_backward = true,
     .closed_form = zb_h1_form,
     .bubble_time = zb_h1_bubble,
     .generate = generate_zb_h1},
    {.name = "zb-h2",
     .summary = "zb-h1 with twice the window",
     .replication = Replication::pipelines,
     .candidate = true,
     .split_backward = true,
     .filling = Filling::bubble_free,
     .closed_form = zb_h2_form,
     .bubble_time = zb_h2_bubble,
     .generate = generate_zb_h2},
    {.name = "auto-zb",
     .summary = "the best order found for the real costs",
     .needs = "costs",
     .replication = Replication::pipelines,
     .candidate = true,
     .split_backward = true,
     .source = ProgramSource::search},
    {.name = "zb-v",
     .summary = "zero bubble, two stages per worker in a V",
     .needs = "v = 2",
     .chunks = Chunks::two,
     .replication = Replication::pipelines,
     .candidate = true,
     .split_backward = true,
     .filling = Filling::bubble_free,
     .closed_form = zb_v_form,
     .generate = generate_zb_v},
    {.name = "dualpipe-v",
     .summary = "forward beside backward, stages in a V",
     .needs = "v = 2, M >= 2K",
     .chunks = Chunks::two,
     .replication = Replication::pipelines,
     .candidate = true,
     .split_backward = true,
     .closed_form = dualpipe_v_form,
     .generate = generate_dualpipe_v},
    {.name = "chimera",
     .summary = "two copies of the model in opposite directions",
     .needs = "K even, M % K = 0",
     .replication = Replication::pipelines,
     .candidate = true,
     .generate = generate_chimera},
    {.name = "pipedream",
     .summary = "1f1b without flush, stashed weights",
     .needs = "M = 1",
     .synchronous = false,
     .replication = Replication::any,
     .policies = {stash, vertical_sync, latest, two_buffered, macrobatch, predict},
     .candidate = true,
     .windowed = true,
     .generate = generate_pipedream},
    {.name = "vertical-sync",
     .summary = "pipedream, one version on all stages",
     .needs = "M = 1, no replicas",
     .synchronous = false,
     .policies = {vertical_sync},
     .windowed = true,
     .generate = generate_pipedream},
    {.name = "2bw",
     .summary = "pipedream with two weight versions",
     .needs = "M >= K",
     .synchronous = false,
     .replication = Replication::equal,
     .policies = {two_buffered},
     .candidate = true,
     .windowed = true,
     .generate = generate_pipedream},
    {.name = "macrobatch",
     .summary = "pipedream, an update every few micro-batches",
     .needs = "M >= K",
     .synchronous = false,
     .replication = Replication::equal,
     .policies = {macrobatch},
     .windowed = true,
     .generate = generate_pipedream},
    {.name = "spectrain",
     .summary = "pipedream on predicted weights",
     .needs = "M = 1, no replicas",
     .synchronous = false,
     .policies = {predict},
     .windowed = true,
     .generate = generate_pipedream},
    {.name = "xpipe",
     .summary = "spectrain, one prediction for M micro-batches",
     .needs = "no replicas",
     .synchronous = false,
     .policies = {predict},
     .any_count = true,
     .windowed = true,
     .generate = generate_pipedream},
    {.name = "parameter-server",
     .summary = "data parallel through a server",
     .needs = "one stage",
     .rules = RuleSet::served,
     .replication = Replication::any,
     .policies = {server},
     .one_stage = true,
     .generate = generate_parameter_server},
    {.name = "downpour",
     .summary = "replicas push and fetch at any time",
     .needs = "one stage, M = 1",
     .synchronous = false,
     .rules = RuleSet::served,
     .replication = Replication::any,
     .policies = {downpour},
     .one_stage = true,
     .generate = generate_asynchronous_replicas},
    {.name = "ssp",
     .summary = "downpour with bounded staleness",
     .needs = "one stage, M = 1",
     .synchronous = false,
     .rules = RuleSet::served,
     .replication = Replication::any,
     .policies = {ssp},
     .one_stage = true,
     .generate = generate_asynchronous_replicas},
    {.name = "hogwild",
     .summary = "replicas share weights without a lock",
     .needs = "one stage, M = 1",
     .synchronous = false,
     .rules = RuleSet::served,
     .replication = Replication::any,
     .policies = {hogwild},
     .one_stage = true,
     .generate = generate_asynchronous_replicas},
    {.name = "partime",
     .summary = "one frame per clock step, online updates",
     .synchronous = false,
     .rules = RuleSet::clocked,
     .policies = {latest},
     .generate = generate_partime},
    {.name = "inference",
     .summary = "forwards only",
     .rules = RuleSet::forward_only,
     .replication = Replication::any,
     .closed_form = inference_form,
     .no_plan = "it does not train; plan with 1f1b, pp-run evaluates through the stages of any plan",
     .generate = generate_inference},
    {.name = "generation",
     .summary = "forwards only, token by token",
     .rules = RuleSet::forward_only,
     .no_plan = "it does not train; plan with 1f1b, pp-run evaluates through the stages of any plan",
     .generate = generate_generation},
    {.name = "harmony-pp",
     .summary = "weights swapped, packs go round the workers",
     .rules = RuleSet::swapped,
     .chunks = Chunks::several,
     .generate = generate_harmony_pp},
    {.name = "harmony-dp",
     .summary = "weights swapped, data parallel",
     .rules = RuleSet::swapped,
     .chunks = Chunks::several,
     .generate = generate_harmony_dp},
    {.name = "custom",
     .summary = "programs written elsewhere",
     .needs = "a CSV file",
     .chunks = Chunks::several,
     .split_backward = true,
     .source = ProgramSource::file},
};

/// Systems that people look for and do not find here: why.
constexpr std::array kLeftOut{
    std::pair{"shat"sv,
              "SHAT is left out: its update rule is not published where we could read it; pp-plan schedules "
              "lists what there is"sv}};

// What other systems (PyTorch, Megatron, DeepSpeed, the papers) call them, in small letters and digits alone.
constexpr std::array kElsewhere{std::pair{"pipedreamflush"sv, "1f1b"sv},
                                std::pair{"interleaved1f1b"sv, "interleaved"sv},
                                std::pair{"virtualpipeline"sv, "interleaved"sv},
                                std::pair{"loopedbfs"sv, "looped-bfs"sv},
                                std::pair{"zerobubble"sv, "zb-h1"sv},
                                std::pair{"zb1p"sv, "zb-h1"sv},
                                std::pair{"zb"sv, "zb-h1"sv},
                                std::pair{"zb2p"sv, "zb-h2"sv},
                                std::pair{"zbvzerobubble"sv, "zb-v"sv},
                                std::pair{"dualpipev"sv, "dualpipe-v"sv},
                                std::pair{"pipedream2bw"sv, "2bw"sv},
                                std::pair{"ddp"sv, "data-parallel"sv},
                                std::pair{"dp"sv, "data-parallel"sv},
                                std::pair{"dapple"sv, "dapple-pa"sv}};

std::string letters_and_digits(std::string_view name) {
  std::string kept = in_small_letters(name);
  std::erase_if(kept, [](char c) { return !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9'); });
  return kept;
}

}  // namespace

const std::vector<ScheduleRow>& schedule_table() { return kTable; }

const ScheduleRow* find_schedule(std::string_view name) {
  for (const ScheduleRow& row : schedule_table()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const ScheduleRow& schedule_of_files() {
  return *std::ranges::find(schedule_table(), ProgramSource::file, &ScheduleRow::source);
}

const ScheduleRow& require_schedule(std::string_view name) {
  if (const ScheduleRow* row = find_schedule(name)) return *row;
  const auto left_out = std::ranges::find(kLeftOut, name, [](const auto& entry) { return entry.first; });
  if (left_out != kLeftOut.end())
    throw Error(ErrorKind::usage, std::string("schedule ").append(name).append(": ").append(left_out->second));
  const auto elsewhere =
      std::ranges::find(kElsewhere, letters_and_digits(name), [](const auto& entry) { return entry.first; });
  if (elsewhere != kElsewhere.end()) {
    throw Error(ErrorKind::usage, "schedule \"" + std::string(name) + "\" is called " +
                                      std::string(elsewhere->second) +
                                      " here; pp-plan schedules lists what there is");
  }
  std::vector<std::string> names;
  for (const ScheduleRow& row : schedule_table()) names.emplace_back(row.name);
  throw Error(ErrorKind::usage, "schedule: " + unknown_name(name, names));
}

}  // namespace pp::plan
