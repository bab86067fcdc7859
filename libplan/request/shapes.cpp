#include "libplan/request/shapes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "libplan/request/plan_request.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

enum class Shape { any, one_stage, straight, equal, placed };

Shape shape_of(const ScheduleRow& schedule, WeightPolicy policy) {
  if (places_stages(schedule)) return Shape::placed;
  if (schedule.one_stage) return Shape::one_stage;
  if (schedule.splits || needs_straight(policy) || schedule.rules == RuleSet::clocked) return Shape::straight;
  return schedule.replication == Replication::equal || aggregates(policy) ? Shape::equal : Shape::any;
}

std::string joined(const std::vector<int>& numbers, std::string_view separator) {
  std::string text;
  for (const int n : numbers) text.append(text.empty() ? "" : separator).append(std::to_string(n));
  return text;
}

/// Whether so many stages of q replicas are all devices, and may be asked for.
bool may_use_all(const SearchSpace& space, int q, int stages) {
  if (stages * q != space.devices || stages > space.layers) return false;
  if (space.exact_stages > 0) return stages == space.exact_stages;
  return space.max_stages == 0 || stages <= space.max_stages;
}

/// Every number of replicas, with even_replicas only those that divide the micro-batches, with as many devices
/// as whole stages of it need; with even_nodes only those that use all devices. Where updates aggregate, no
/// more stages than the micro-batches of a replica.
std::vector<SearchPart> equal_parts(const SearchPart& whole, int micro_batches, bool aggregated,
                                    const PlanRequest& request) {
  std::vector<SearchPart> parts;
  for (int q = whole.space.min_replicas; q <= whole.space.replica_limit(); ++q) {
    if ((aggregated || request.even_replicas) && micro_batches % q != 0) continue;
    int stages = whole.space.devices / q;
    if (aggregated) stages = std::min(stages, micro_batches / q);
    if (request.even_nodes && !may_use_all(whole.space, q, stages)) continue;
    SearchPart& part = parts.emplace_back(whole);
    if (request.even_nodes) part.space.exact_stages = stages;
    part.space.min_replicas = part.space.max_replicas = q;
    part.space.devices = q * stages;
  }
  return parts;
}

/// What the searches over all shapes may not meet, as replicas that differ are lighter by their objective:
/// whole pipelines side by side on all devices.
std::vector<SearchPart> with_equal_parts(const SearchPart& whole) {
  std::vector<SearchPart> parts{whole};
  const SearchSpace& space = whole.space;
  if (!space.replicas.empty()) return parts;
  for (int q = std::max(2, space.min_replicas); q <= std::min(space.replica_limit(), space.devices / 2); ++q) {
    if (space.devices % q != 0) continue;
    SearchPart& part = parts.emplace_back(whole);
    part.space.min_replicas = part.space.max_replicas = q;
  }
  return parts;
}

/// Whether stages with so many replicas fill groups of the cluster, or equal shares of them.
bool is_aligned(const Cluster& cluster, int replicas) {
  const bool fills = std::ranges::all_of(cluster.levels, [&](const Level& level) {
    return level.devices % replicas == 0 || replicas % level.devices == 0 ||
           level.devices >= std::ssize(cluster.devices);
  });
  // Empty slots must not part the devices of a stage.
  for (int first = 0; fills && first + replicas <= std::ssize(cluster.devices); first += replicas) {
    if (slot_of(cluster, first + replicas - 1) - slot_of(cluster, first) >= replicas) return false;
  }
  return fills;
}

/// Pipelines of equal replicas, of as many stages as there are devices or layers for: of each number of turns
/// that a replica takes (streams, with 0 micro-batches: of all numbers of replicas) the one with fewest; where
/// replicas share the optimizer's state, also the one with most for as many stages, which hold less. On most
/// devices first, whose plans spare the others a search.
std::vector<SearchPart> large_parts(const SearchPart& whole, int micro_batches, const Cluster& cluster) {
  std::vector<SearchPart> parts;
  int last = 0, longest = 0;  // turns, and stages of the first with so many
  std::size_t first = 0;
  for (int q = whole.space.min_replicas; q <= whole.space.replica_limit(); ++q) {
    const int turns = micro_batches == 0 ? q : (micro_batches + q - 1) / q;
    const int stages = std::min(whole.space.devices / q, whole.space.layers);
    const bool again = turns == last;
    if (again && (!whole.in_flight.sharded || stages < longest)) continue;
    if (stages < whole.space.exact_stages || !is_aligned(cluster, q)) continue;
    last = turns;
    if (!again) first = parts.size(), longest = stages;
    parts.resize(std::min(parts.size(), first + 1), whole);
    SearchPart& part = parts.emplace_back(whole);
    part.space.min_replicas = part.space.max_replicas = q;
    part.space.devices = q * stages;
    part.space.aligned = true;
  }
  std::ranges::stable_sort(parts, std::greater<>(), [](const SearchPart& part) {
    return std::pair(part.space.devices, part.space.min_replicas);
  });
  return parts;
}

/// Each with the versions of a pipeline as long as it may become.
std::vector<SearchPart> straight_parts(const SearchPart& whole, bool limited) {
  std::vector<SearchPart> parts;
  for (int stages = limited ? 1 : whole.space.devices; stages <= whole.space.devices; ++stages) {
    SearchPart& part = parts.emplace_back(whole);
    part.space.devices = part.in_flight.stages = stages;
  }
  return parts;
}

/// A stream whose turns are too many for a plan.
bool meets_too_late(const std::vector<int>& replicas) {
  if (replicas.empty()) return false;
  const int round = stream_round(replicas, 1, static_cast<int>(kOperationLimit));
  return std::ranges::any_of(replicas, [&](int count) { return round % count != 0; });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_number(std::string_view part) { return !part.empty() && std::ranges::all_of(part, is_digit); }

/// `block3` of `block3.mlp`; empty where the first part does not end in a number, or is the whole name.
std::string_view numbered_first(std::string_view layer) {
  const std::size_t end = layer.find('.');
  return end != std::string_view::npos && end > 0 && is_digit(layer[end - 1]) ? layer.substr(0, end)
                                                                              : std::string_view();
}

}  // namespace

std::vector<SearchPart> search_parts(const ScheduleRow& schedule, const PlanRequest& request, SearchPart whole,
                                     int micro_batches, bool limited, const Cluster& cluster) {
  const WeightPolicy policy = policy_of(schedule, request);
  const bool large = whole.space.replicas.empty() && is_large(whole.space.layers, whole.space.devices);
  switch (shape_of(schedule, policy)) {
    case Shape::any:
      if (large) return large_parts(whole, schedule.synchronous ? micro_batches : 0, cluster);
      return with_equal_parts(whole);
    case Shape::one_stage:
      if (whole.space.exact_stages > 1) return {};
      whole.space.exact_stages = 1;
      if (large) return large_parts(whole, schedule.synchronous ? micro_batches : 0, cluster);
      break;
    case Shape::placed: break;
    case Shape::equal: return equal_parts(whole, micro_batches, aggregates(policy), request);
    case Shape::straight:
      whole.space.max_replicas = 1;
      if (needs_straight(policy)) return straight_parts(whole, limited);
      break;
  }
  return {whole};
}

bool is_free_shape(const ScheduleRow& schedule, WeightPolicy policy) {
  return shape_of(schedule, policy) == Shape::any;
}

std::string shape_refusal(const ScheduleRow& schedule, const PlanRequest& request) {
  const WeightPolicy policy = policy_of(schedule, request);
  const Shape shape = shape_of(schedule, policy);
  const std::string name = "schedule " + std::string(schedule.name);
  const std::string under = name + " under weight policy " + std::string(name_of(policy));
  if (const int stages = requested_stages(request); shape == Shape::one_stage && stages > 1) {
    return name + " runs the whole model on every worker, found " + std::to_string(stages) +
           " stages; leave the stages out, or plan with 1f1b";
  }
  if (shape == Shape::straight && std::ranges::any_of(request.replicas, [](int count) { return count > 1; })) {
    return schedule.splits ? name +
                                 " splits micro-batches over replicas, which pp-run does not; leave --replicas "
                                 "out, or plan with 1f1b"
           : schedule.rules == RuleSet::clocked
               ? name + " runs 1 worker per stage; leave --replicas out"
               : under + " has no replicas; leave --replicas out, or use --weight-policy stash";
  }
  if (shape == Shape::equal &&
      std::ranges::adjacent_find(request.replicas, std::ranges::not_equal_to()) != request.replicas.end())
    return under + " has the same number of replicas on every stage, found " + joined(request.replicas, "-");
  if (!schedule.synchronous && meets_too_late(request.replicas)) {
    return name + ": replicas " + joined(request.replicas, "-") + " take turns that meet after more than " +
           std::to_string(kOperationLimit) +
           " micro-batches, the limit; give the stages replicas with a smaller common multiple";
  }
  const bool larger = request.window == WindowRule::wide || request.window == WindowRule::explicit_list;
  if (larger && (aggregates(policy) || needs_straight(policy)))
    return under + " needs the windows of win; leave --window out";
  return {};
}

void check_update(const ScheduleRow& schedule, const PlanRequest& request, int micro_batches) {
  if (!aggregates(policy_of(schedule, request))) return;
  const int stages = std::max(1, requested_stages(request));
  const int replicas = request.replicas.empty() ? 1 : request.replicas.front();
  const int least = stages * replicas;
  if (micro_batches >= least && micro_batches % replicas == 0) return;
  const int next = std::max(least, (micro_batches + replicas - 1) / replicas * replicas);
  const std::string wanted = micro_batches < least
                                 ? "less than " + std::to_string(stages) + " stages"
                                 : "not a multiple of " + std::to_string(replicas) + " replicas";
  const std::string times =
      micro_batches < least && replicas > 1 ? " times " + std::to_string(replicas) + " replicas" : "";
  throw Error(ErrorKind::usage, "schedule " + std::string(schedule.name) +
                                    ": micro_batches = " + std::to_string(micro_batches) + " per update is " +
                                    wanted + times + "; use --micro-batches " + std::to_string(next));
}

std::string_view block_of(std::string_view layer, int depth) {
  int parts = 0;
  for (std::size_t begin = 0; begin < layer.size();) {
    const std::size_t end = std::min(layer.find('.', begin), layer.size());
    ++parts;
    if (depth > 0 ? parts == depth : is_number(layer.substr(begin, end - begin))) return layer.substr(0, end);
    begin = end + 1;
  }
  return depth > 0 ? layer : numbered_first(layer);
}

std::vector<std::vector<int>> numbered_blocks(const PlanGraph& graph) {
  std::map<std::string_view, std::vector<int>> members;
  for (int l = 0; l < graph.size(); ++l) {
    const std::string_view block = block_of(graph.layers[at(l)].name);
    if (!block.empty()) members[block].push_back(l);
  }
  std::vector<std::vector<int>> blocks;
  for (auto& [name, layers] : members) blocks.push_back(std::move(layers));
  std::ranges::sort(blocks);
  return blocks;
}

std::vector<std::vector<int>> blocks_of(const PlanGraph& graph, int depth) {
  using Block = std::pair<std::string_view, int>;  // layers in no block are told apart by the run they are in
  std::map<Block, std::vector<int>> members;
  int run = 0;
  for (int l = 0; l < graph.size(); ++l) {
    const std::string_view block = block_of(graph.layers[at(l)].name, depth);
    if (!block.empty()) ++run;
    members[{block, block.empty() ? run : 0}].push_back(l);
  }
  std::vector<std::vector<int>> blocks;
  for (auto& [name, layers] : members) {
    if (layers.size() > 1) blocks.push_back(std::move(layers));
  }
  if (run == 0) return {};  // no layer is in a block
  std::ranges::sort(blocks);
  return blocks;
}

}  // namespace pp::plan
