#include "libplan/report/profile_study.h"

#include <algorithm>
#include <numeric>

#include "libplan/cost/links.h"
#include "libplan/peers/strategy.h"
#include "libplan/price/pricing.h"
#include "libplan/request/request.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

/// Counts per mini-batch, ascending, each once.
std::vector<int> counts_of(const Profile& profile, const PlanRequest& request, std::vector<int> asked) {
  if (asked.empty()) {
    for (const BatchOption& option : batch_options(profile, request, require_schedule(request.schedule)))
      asked.push_back(option.micro_batches);
  }
  std::ranges::sort(asked);
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  for (const int count : asked) {
    micro_batch_sizes(request.mini_batch, count);  // refuses more micro-batches than samples
    if (request.mini_batch % count == 0) continue;
    throw Error(ErrorKind::usage,
                "micro_batches = " + std::to_string(count) + " does not divide the mini-batch of " +
                    std::to_string(request.mini_batch) +
                    " samples, and the formulas are of equal micro-batches; use " +
                    std::to_string(std::gcd(count, request.mini_batch)) + ", or another mini-batch");
  }
  return asked;
}

/// Of one size for all.
PricedModel priced(const Profile& profile, const PlanRequest& request, int micro_batches) {
  const std::vector<int> sizes = micro_batch_sizes(request.mini_batch, micro_batches);
  return price_model(profile, sizes, {request.extrapolate, request.linear_batch});
}

/// The forwards of `model` as even as whole layers allow.
std::vector<int> balanced_cuts(const PricedModel& model, int stages) {
  std::vector<double> forwards;
  for (const LayerPrice& layer : model.layers) forwards.push_back(layer.forward);
  forwards.back() += model.loss.forward;
  std::vector<int> cuts = balance_exactly(forwards, stages);
  std::partial_sum(cuts.begin(), cuts.end(), cuts.begin());
  cuts.pop_back();
  return cuts;
}

/// Stage s on device s, without programs: prices of single operations depend on none.
Assignment assignment_of(int layers, const std::vector<int>& cuts) {
  Assignment assignment;
  int begin = 0;
  for (std::size_t s = 0; s <= cuts.size(); ++s) {
    const int end = s < cuts.size() ? cuts[s] : layers;
    auto& stage = assignment.stage_layers.emplace_back(at(end - begin));
    std::iota(stage.begin(), stage.end(), begin);
    assignment.stage_workers.push_back({static_cast<int>(s)});
    assignment.worker_devices.push_back(static_cast<int>(s));
    begin = end;
  }
  assignment.programs.resize(assignment.stage_layers.size());
  return assignment;
}

/// Layers per stage: `7|5`.
std::string stages_text(const Assignment& assignment) {
  std::string text;
  for (const std::vector<int>& layers : assignment.stage_layers)
    text.append(text.empty() ? "" : "|").append(std::to_string(layers.size()));
  return text;
}

std::vector<Seconds> forwards_of(const PricedStages& priced) {
  std::vector<Seconds> times;
  for (const StageCosts& stage : priced.stages) times.push_back(stage.forward);
  return times;
}

/// Until the activations of the stages in front have arrived.
std::vector<Seconds> with_transfers(std::vector<Seconds> times, const PricedStages& priced,
                                    const Cluster& cluster) {
  for (const StageEdge& edge : priced.edges) {
    const Link link = link_between(cluster, number(edge.from), number(edge.to));
    times[at(number(edge.to))] +=
        Seconds(transfer_time(static_cast<double>(edge.activation.value), edge.activation_tensors, link));
  }
  return times;
}

void require_time(const StageTimeRow& row) {
  if (std::ranges::any_of(row.stages, [](Seconds time) { return time > Seconds(0); })) return;
  throw Error(ErrorKind::data, "no stage takes any time with " + counted(row.micro_batches, "micro-batch") +
                                   "; profile the model on a device");
}

}  // namespace

StageTimeTables profile_stage_times(const Profile& profile, const std::optional<Cluster>& cluster,
                                    PlanRequest request, std::vector<int> micro_batches) {
  const int stages = requested_stages(request);
  if (stages == 0)
    throw Error(ErrorKind::usage, "a profile has no stages: say how to cut it; add --stages K or --cuts K,K");
  request.schedule = "gpipe";          // whose forwards the formulas describe
  request.tied = TiedWeights::copies;  // forwards only read weights
  const PlanGraph graph = planned_graph(profile, request);
  const Cluster devices =
      cluster ? *cluster
              : flat_cluster(stages, profile.device.kind, kLargestBandwidth, Seconds(0), profile.device.memory);
  check_request(profile, devices, graph, request);
  const std::vector<int> counts = counts_of(profile, request, std::move(micro_batches));
  if (request.cuts.empty())
    request.cuts = balanced_cuts(priced(profile, request, counts[counts.size() / 2]), stages);

  const Assignment assignment = assignment_of(graph.size(), request.cuts);
  StageTimeTable compute{.title = "without communication"};
  StageTimeTable all{.title = "with communication"};
  for (const int count : counts) {
    const PricedStages times =
        price_stages({graph, priced(profile, request, count), devices, {}, 0}, assignment);
    compute.rows.push_back({count, forwards_of(times)});
    require_time(compute.rows.back());
    if (cluster) all.rows.push_back({count, with_transfers(forwards_of(times), times, *cluster)});
  }
  StageTimeTables result{profile.model.name + ", stages " + stages_text(assignment),
                         "forwards of a mini-batch of " + counted(request.mini_batch, "sample"),
                         {compute}};
  if (cluster) result.tables.push_back(all);
  return result;
}

}  // namespace pp::plan
