#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "libplan/request/device_orders.h"
#include "libplan/request/request.h"
#include "libplan/request/shapes.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/placement.h"
#include "libplan/schedule/validate.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::usage, message); }

void require_at_least(int value, int least, const std::string& name) {
  if (value < least) refuse(name + " = " + std::to_string(value) + "; give at least " + std::to_string(least));
}

void check_batch(const PlanRequest& request) {
  if (request.mini_batch < 1) {
    refuse("mini_batch = " + std::to_string(request.mini_batch) +
           ": the samples per optimizer update are not given; add --mini-batch N");
  }
  if (request.micro_batches && request.micro_batch_size) {
    refuse("micro_batches and micro_batch_size are both given; leave one out");
  }
  if (request.micro_batches) {
    require_at_least(*request.micro_batches, 1, "micro_batches");
    micro_batch_sizes(request.mini_batch, *request.micro_batches);
  }
  if (request.micro_batch_size) {
    require_at_least(*request.micro_batch_size, 1, "micro_batch_size");
    if (*request.micro_batch_size > request.mini_batch) {
      refuse("micro_batch_size = " + std::to_string(*request.micro_batch_size) + " exceeds the mini-batch of " +
             std::to_string(request.mini_batch) + " samples");
    }
  }
}

/// Of trainers whose micro-batches are all of one size.
void check_even(const PlanRequest& request) {
  const int samples = request.mini_batch, count = request.micro_batches.value_or(1);
  const int size = request.micro_batch_size.value_or(1);
  if (!request.even_replicas || (samples % count == 0 && samples % size == 0)) return;
  refuse(
      (count > 1 ? "micro_batches = " + std::to_string(count) : "micro_batch_size = " + std::to_string(size)) +
      ": " + std::to_string(samples) + " samples make no micro-batches of one size, which --for " +
      request.trainer + " needs; give a divisor of the mini-batch, or leave it out");
}

/// `name = 9 exceeds the number of layers, 6`
void require_at_most(int value, int most, const std::string& name, const std::string& of) {
  if (value > most)
    refuse(name + " = " + std::to_string(value) + " exceeds the number of " + of + ", " + std::to_string(most));
}

/// What else there is where layers that share weights stand in the way: copies, where the schedules have them.
std::string or_copies(const PlanRequest& request) {
  const auto may = [](const ScheduleRow* row) { return may_copy_tied(*row); };
  const bool possible = chooses_schedule(request) || std::ranges::all_of(requested_schedules(request), may);
  return possible ? ", or let stages hold copies of them with --tied copies" : "";
}

/// More than one for the schedules with several.
int stages_per_worker(const PlanRequest& request) {
  if (chooses_schedule(request) || request.programs) return 1;
  ScheduleRequest one;
  one.name = request.schedule;
  one.chunks_per_worker = request.chunks_per_worker;
  return chunks_of(one);
}

/// An option of schedules with several stages per worker is of no use to a request for others.
void check_chunks(const PlanRequest& request) {
  const auto has_one = [](const ScheduleRow* row) { return row->chunks == Chunks::one; };
  if (request.chunks_per_worker < 2 || request.programs || request.schedule == "auto" ||
      !std::ranges::all_of(requested_schedules(request), has_one))
    return;
  refuse("chunks = " + std::to_string(request.chunks_per_worker) + ": schedule " + request.schedule +
         " runs 1 stage per worker; leave it out, or use interleaved");
}

/// The stage counts that several options imply have to agree; workers count for the stages that they have.
void check_counts_agree(const PlanRequest& request, int stages_per_worker) {
  struct Count {
    std::string_view option;
    std::size_t stages;
  };
  const std::size_t chunks = at(stages_per_worker);
  std::vector<Count> counts;
  if (request.stages) counts.push_back({"stages", at(*request.stages) * chunks});
  if (!request.cuts.empty()) counts.push_back({"cuts", request.cuts.size() + 1});
  if (!request.replicas.empty()) counts.push_back({"replicas", request.replicas.size() * chunks});
  if (request.window == WindowRule::explicit_list) counts.push_back({"window", request.windows.size()});
  const std::string each = chunks > 1 ? ", " + std::to_string(chunks) + " per worker" : "";
  for (const Count& count : counts) {
    if (count.stages == counts.front().stages) continue;
    refuse(std::string(counts.front().option) + " asks for " + std::to_string(counts.front().stages) +
           " stages" + each + ", " + std::string(count.option) + " for " + std::to_string(count.stages) +
           "; make them agree");
  }
}

void check_programs(const ProgramSet& programs) {
  with_context("schedule custom", [&] {
    validate(programs);
    check_owners(programs);
  });
}

/// What an int does not hold is as good as the most that it does.
int product(int a, int b) {
  return static_cast<int>(std::min<std::int64_t>(std::int64_t{a} * b, std::numeric_limits<int>::max()));
}

void check_stages(const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request) {
  const int devices = static_cast<int>(cluster.devices.size());
  if (request.stages) require_at_least(*request.stages, 1, "stages");
  if (request.max_stages) require_at_least(*request.max_stages, 1, "max_stages");
  const int chunks = stages_per_worker(request);
  check_counts_agree(request, chunks);
  const bool counts_workers = chunks > 1 && request.cuts.empty();
  const int asked = requested_stages(request);
  const int stages = counts_workers ? product(asked, chunks) : asked;
  if (!counts_workers && stages % chunks != 0) {
    refuse("cuts: " + std::to_string(stages) + " stages are not a multiple of " + std::to_string(chunks) +
           " stages per worker");
  }
  const int least = std::max(stages, chunks);  // one worker has as many
  require_at_most(least, graph.size(), "stages", "layers");
  require_at_most(stages / chunks, devices, chunks > 1 ? "workers" : "stages", "devices");
  if (request.max_stages) require_at_most(least, *request.max_stages, "stages", "max_stages");
  if (!graph.has_groups() || least <= most_stages(graph)) return;
  const std::string found =
      "stages = " + std::to_string(least) + " exceeds " + std::to_string(most_stages(graph)) + ": layers ";
  const std::string fewer = stages > 0 ? "plan fewer stages" : "plan a schedule with 1 stage per worker";
  PlanGraph without = graph;
  without.blocks.clear();
  if (least <= most_stages(without))
    refuse(found + "of one block stay in one stage; " + fewer + ", or leave --cut-at out");
  refuse(found + "that share weights stay in one stage; " + fewer + or_copies(request));
}

void check_cuts(const PlanGraph& graph, const PlanRequest& request) {
  std::vector<int> position(at(graph.size()));  // in which cuts count
  std::iota(position.begin(), position.end(), 0);
  for (std::size_t p = 0; p < request.layer_order.size(); ++p)
    position[at(request.layer_order[p])] = static_cast<int>(p);
  for (std::size_t i = 0; i < request.cuts.size(); ++i) {
    const int cut = request.cuts[i];
    if (cut < 1 || cut >= graph.size()) {
      refuse("cuts: boundary " + std::to_string(cut) + " is outside 1.." + std::to_string(graph.size() - 1));
    }
    if (i > 0 && cut <= request.cuts[i - 1]) {
      refuse("cuts: boundary " + std::to_string(cut) + " does not come after " +
             std::to_string(request.cuts[i - 1]) + "; list them in ascending order");
    }
    const auto parts = [&](const std::vector<int>& group) {
      const auto [first, last] = std::ranges::minmax(group, {}, [&](int layer) { return position[at(layer)]; });
      return cut > position[at(first)] && cut <= position[at(last)];
    };
    const auto separates = [&](const std::vector<int>& group) {
      return "cuts: boundary " + std::to_string(cut) + " separates layers " +
             graph.layers[at(group.front())].name + " and " + graph.layers[at(group.back())].name + ", which ";
    };
    for (const std::vector<int>& group : graph.tied) {
      if (parts(group)) refuse(separates(group) + "share weights; move it" + or_copies(request));
    }
    for (const std::vector<int>& group : graph.blocks) {
      if (parts(group)) refuse(separates(group) + "are of one block; move it, or leave --cut-at out");
    }
  }
}

void check_blocks(const Profile& profile, const PlanGraph& graph, const PlanRequest& request) {
  if (!request.cut_at || !graph.blocks.empty()) return;
  if (request.cut_at->depth > 0) {
    refuse("cut_at = " + std::to_string(request.cut_at->depth) +
           ": no two layers have so many parts of their names in common; give fewer");
  }
  refuse("cut_at = block: no names of several layers of " + profile.model.name +
         " begin with the same number (as in model.layers.3.mlp); say with --cut-at N how many parts of a "
         "name make a block");
}

void check_replicas(const Cluster& cluster, const PlanRequest& request) {
  for (const int count : request.replicas) require_at_least(count, 1, "replicas");
  const auto sum = std::accumulate(request.replicas.begin(), request.replicas.end(), std::int64_t{0});
  const auto devices = std::ssize(cluster.devices);
  if (sum > devices) {
    refuse("replicas need " + std::to_string(sum) + " devices, the cluster has " + std::to_string(devices));
  }
  if (request.replicas.empty() || !request.micro_batches) return;
  const int largest = *std::max_element(request.replicas.begin(), request.replicas.end());
  if (largest > *request.micro_batches && requested_schedules(request).front()->synchronous) {
    refuse("replicas = " + std::to_string(largest) + " exceeds the number of micro-batches, " +
           std::to_string(*request.micro_batches) + "; replicas beyond it would be idle");
  }
}

void check_devices(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  if (cluster.devices.empty()) refuse("the cluster has no devices; give it at least one");
  if (std::ssize(cluster.devices) > kWorkerLimit) {
    refuse(std::to_string(cluster.devices.size()) + " devices exceed the limit of " +
           std::to_string(kWorkerLimit) + " that can be simulated; plan for a smaller cluster");
  }
  for (const Device& device : cluster.devices) {
    if (device.kind != profile.device.kind) {
      refuse("device " + std::to_string(number(device.id)) + " is " + std::string(name_of(device.kind)) +
             ", the profile was taken on " + std::string(name_of(profile.device.kind)) +
             "; profile the model on that kind of device");
    }
    if (!(device.speed > 0)) refuse("device " + std::to_string(number(device.id)) + ": speed must be above 0");
  }
  if (request.memory_limit) {
    if (request.memory_limit->value < 1)
      refuse("memory_limit = " + std::to_string(request.memory_limit->value) + " bytes; give at least 1");
  }
  const double overlap = request.all_reduce_overlap.value_or(0);
  if (!(overlap >= 0 && overlap <= 1)) {
    refuse("all_reduce_overlap = " + std::to_string(overlap) +
           " is not a share of the last backward; give 0 to 1");
  }
  if (!(request.reserve >= 0 && request.reserve < 1)) refuse("reserve must be at least 0 and below 1");
  if (request.context_bytes < Bytes(0) || request.context_bytes.value > kMostInteger) {
    refuse("context_bytes = " + std::to_string(request.context_bytes.value) + "; give 0 to " +
           std::to_string(kMostInteger));
  }
  const double ratio = request.optimizer_state_ratio.value_or(0);
  if (!(ratio >= 0 && ratio <= kLargestStateRatio)) {
    refuse("optimizer_state_ratio = " + std::to_string(ratio) + "; give 0 to " +
           std::to_string(static_cast<int>(kLargestStateRatio)));
  }
}

void check_precision(const Profile& profile, const PlanRequest& request) {
  const bool whole = profile.dtype == DType::float32;
  const bool half = size_of(profile.dtype) == 2;
  const std::string found = ", and the profile is of " + std::string(name_of(profile.dtype));
  if (request.precision == Precision::autocast && !whole)
    refuse("precision autocast keeps float32 weights" + found + "; profile the model with --dtype float32" +
           (half
                ? ", or plan with --precision mixed, which holds as many bytes: half weights for the products, "
                  "float32 ones for the updates"
                : ""));
  if (request.precision == Precision::mixed && !half)
    refuse("precision mixed keeps weights of a half type" + found +
           "; profile the model with --dtype bfloat16");
}

void check_one_memory(const Cluster& cluster, const PlanRequest& request) {
  const auto rows = requested_schedules(request);
  if (rows.size() != 1 || policy_of(*rows.front(), request) != WeightPolicy::hogwild) return;
  std::set<std::string> nodes;
  for (const Device& device : cluster.devices) nodes.insert(device.node);
  if (nodes.size() == 1) return;
  refuse("schedule hogwild: its replicas change the same memory without a lock, and the cluster has " +
         std::to_string(nodes.size()) + " nodes; give the devices of one, or plan with downpour");
}

void check_units(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  if (request.force_units) return;
  double forward = 0;
  for (const LayerProfile& layer : profile.layers) {
    const LayerPoint* first = layer.points.empty() ? nullptr : &layer.points.front();
    if (first != nullptr)
      forward += first->forward.median.count() / static_cast<double>(first->micro_batch_size);
  }
  if (forward < 1e-9 || forward > 1e3) {
    refuse("the profile's forward time of one sample is " + pp::to_text(Seconds(forward)) +
           ", outside 1e-9..1e3 s: not seconds? Allow it with --force-units");
  }
  for (const Level& level : cluster.levels) {
    if (level.bandwidth >= kSmallestBandwidth && level.bandwidth <= kLargestBandwidth) continue;
    refuse("level " + level.name + ": bandwidth " + pp::to_text(level.bandwidth) +
           " is outside 1e6..1e13 bytes per second: another unit? Allow it with --force-units");
  }
}

/// Of a schedule whose weights live on the host.
void check_swaps(const ScheduleRow& row, const PlanRequest& request) {
  const std::string name = "schedule " + std::string(row.name);
  if (request.recompute != RecomputeMode::never)
    refuse(name + ": its tasks say what runs again; leave --recompute out");
  if (!request.swap_bandwidth) {
    refuse(name +
           ": weights live on the host, and nothing says how fast they come to a device; add "
           "--swap-bandwidth, for example 12GB/s (the report of pp-run tells what it measured)");
  }
  if (!(request.swap_bandwidth->value > 0)) refuse("swap_bandwidth must be above 0");
  const double overlap = request.swap_overlap.value_or(0);
  if (!(overlap >= 0 && overlap <= 1))
    refuse("swap_overlap = " + std::to_string(overlap) + " is not a share of what is swapped; give 0 to 1");
}

void check_policy(const PlanRequest& request) {
  if (requested_schedules(request).empty()) {
    refuse("no schedule of auto goes with " +
           (request.weight_policy ? "weight_policy = " + std::string(name_of(*request.weight_policy))
                                  : "these chunks, stages and replicas") +
           "; add --allow-async, or name the schedule");
  }
  for (const ScheduleRow* row : requested_schedules(request)) {
    if (!row->no_plan.empty()) {
      refuse("schedule " + std::string(row->name) + " has no plans: " + std::string(row->no_plan) +
             " (pp-plan simulate --schedule runs it)");
    }
    if (places_stages(*row) && !has_copies(*row, request.replicas)) {
      refuse("schedule " + std::string(row->name) +
             (row->replication == Replication::pipelines
                  ? " runs whole pipelines side by side; give --replicas one number for all of its workers"
                  : " runs 1 worker per stage; leave --replicas out"));
    }
    if (request.tied == TiedWeights::copies && !may_copy_tied(*row)) {
      refuse("schedule " + std::string(row->name) +
             " keeps shared weights in one stage; leave --tied out, or plan with gpipe or 1f1b");
    }
    if (request.shard == ShardChoice::optimizer && !may_shard(*row)) {
      refuse("schedule " + std::string(row->name) +
             " updates weights that its replicas do not share; leave --shard out, or plan with 1f1b");
    }
    if ((row->source == ProgramSource::file) != request.programs.has_value())
      refuse("schedule custom and a file of programs go together; add --programs FILE.csv");
    if (row->source == ProgramSource::file && request.recompute != RecomputeMode::never)
      refuse("schedule custom: its programs say what runs again; leave --recompute out");
    if (row->rules == RuleSet::clocked && request.recompute != RecomputeMode::never)
      refuse("schedule " + std::string(row->name) + ": a clock step runs nothing again; leave --recompute out");
    if (row->rules == RuleSet::swapped) check_swaps(*row, request);
    if (request.programs) check_programs(*request.programs);
    if (!row->synchronous && request.recompute == RecomputeMode::except_last) {
      refuse("recompute except_last needs a last micro-batch, schedule " + std::string(row->name) +
             " has none; use always or auto");
    }
    const WeightPolicy policy = policy_of(*row, request);
    if (std::ranges::count(row->policies, policy) == 0) {
      refuse("weight_policy = " + std::string(name_of(policy)) + " does not go with schedule " +
             std::string(row->name) + "; use " + std::string(name_of(row->default_policy())));
    }
    if (const std::string refusal = shape_refusal(*row, request); !refusal.empty()) refuse(refusal);
  }
}

}  // namespace

void check_request(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request) {
  check_batch(request);
  check_policy(request);
  check_devices(profile, cluster, request);
  check_precision(profile, request);
  check_one_memory(cluster, request);
  check_units(profile, cluster, request);
  check_blocks(profile, graph, request);
  check_chunks(request);
  check_stages(cluster, graph, request);
  check_cuts(graph, request);
  check_replicas(cluster, request);
  check_even(request);
}

}  // namespace pp::plan
