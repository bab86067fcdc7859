#include "libplan/search/pipedream_code.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libplan/cost/chain.h"
#include "libplan/cost/priced_model.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/search/linear_order.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The released recurrence on one layer order: best[end][machines] over the first `end` layers on exactly that
/// many.
class Recurrence {
 public:
  Recurrence(const Chain& chain, const PipedreamOptions& options)
      : chain_(chain), options_(options), layers_(chain.size()), machines_(options.machines) {
    table_.resize(static_cast<std::size_t>(layers_ + 1) * static_cast<std::size_t>(machines_ + 1));
    for (int end = 1; end <= layers_; ++end) {
      for (int machines = 1; machines <= machines_; ++machines) solve(end, machines);
    }
  }

  double objective(int machines) const { return entry(layers_, machines).value; }

  Partition partition(int machines) const {
    Partition result;
    for (int end = layers_; end > 0;) {
      const Entry& stage = entry(end, machines);
      result.push_back({stage.begin, end, stage.replicas});
      end = stage.begin;
      machines -= stage.replicas;
    }
    std::reverse(result.begin(), result.end());
    return result;
  }

  /// Compute plus all-reduce of a stage, spread over its replicas.
  double stage_time(int begin, int end, int replicas) const {
    const double weights = chain_.sum(chain_.weights, begin, end);
    const double reduce = 4.0 * (replicas - 1) * weights / (options_.bandwidth.value * replicas);
    return (chain_.compute(begin, end) + reduce) / replicas;
  }

 private:
  struct Entry {
    double value = kInfinity;
    int begin = 0;
    int replicas = 1;
  };
  const Entry& entry(int end, int machines) const {
    return table_[static_cast<std::size_t>(end) * static_cast<std::size_t>(machines_ + 1) +
                  static_cast<std::size_t>(machines)];
  }

  void solve(int end, int machines) {
    Entry best;
    if (fits(0, end, machines, machines)) best = {stage_time(0, end, machines), 0, machines};
    for (int begin = 1; begin < end; ++begin) {
      for (int replicas = 1; replicas < machines; ++replicas) {
        if (!fits(begin, end, replicas, machines)) continue;
        double value = std::max(entry(begin, machines - replicas).value, stage_time(begin, end, replicas));
        value = std::max(value, cut_time(begin, replicas));
        if (end < layers_) value = std::max(value, cut_time(end, replicas));
        if (value < best.value) best = {value, begin, replicas};
      }
    }
    table_[static_cast<std::size_t>(end) * static_cast<std::size_t>(machines_ + 1) +
           static_cast<std::size_t>(machines)] = best;
  }

  double cut_time(int boundary, int replicas) const {
    if (!options_.activation_compression) return 0;
    const double bytes = 2 * chain_.cut_activation[static_cast<std::size_t>(boundary)];
    return bytes / (options_.bandwidth.value * replicas * *options_.activation_compression);
  }

  /// As released: machines behind the stage decide the copies, so the last stage keeps none.
  bool fits(int begin, int end, int replicas, int used) const {
    if (!options_.memory_limit) return true;
    const double copies = (machines_ - used + replicas - 1) / replicas;
    const double bytes =
        static_cast<double>(chain_.sum(chain_.saved, begin, end)) + chain_.sum(chain_.weights, begin, end);
    return copies * bytes <= static_cast<double>(options_.memory_limit->value);
  }

  const Chain& chain_;
  const PipedreamOptions& options_;
  int layers_;
  int machines_;
  std::vector<Entry> table_;
};

void check_options(const PipedreamOptions& options) {
  if (options.machines < 1) {
    throw Error(ErrorKind::usage, "machines = " + std::to_string(options.machines) + "; give at least 1");
  }
  if (!(options.bandwidth.value > 0)) {
    throw Error(ErrorKind::usage,
                "the cost model pipedream-code needs a bandwidth above 0; add --bandwidth RATE");
  }
  if (options.activation_compression && !(*options.activation_compression > 0)) {
    throw Error(ErrorKind::usage, "the activation compression ratio must be above 0");
  }
}

/// Holds whatever the order of the layers: the work spread over all machines, and the heaviest layer by itself.
double order_free_bound(const Chain& chain, const Recurrence& recurrence, int machines) {
  double bound = chain.compute(0, chain.size()) / machines;
  for (int layer = 0; layer < chain.size(); ++layer) {
    double least = kInfinity;
    for (int q = 1; q <= machines; ++q) least = std::min(least, recurrence.stage_time(layer, layer + 1, q));
    bound = std::max(bound, least);
  }
  return bound;
}

struct Best {
  double objective = kInfinity;
  Partition partition;
  std::vector<PipedreamStage> stages;
  double bound = 0;
};

std::vector<PipedreamStage> stages_of(const PlanGraph& graph, const LinearOrder& order,
                                      const Recurrence& recurrence, const Partition& partition) {
  std::vector<PipedreamStage> stages;
  for (const auto& [begin, end, replicas] : partition) {
    PipedreamStage& stage = stages.emplace_back();
    stage.replicas = replicas;
    stage.time = Seconds(recurrence.stage_time(begin, end, replicas));
    for (int p = begin; p < end; ++p) {
      stage.layers.push_back(
          graph.layers[static_cast<std::size_t>(order.layers[static_cast<std::size_t>(p)])].name);
    }
  }
  return stages;
}

}  // namespace

std::variant<PipedreamResult, Infeasible> plan_pipedream_code(const Profile& profile,
                                                              const PipedreamOptions& options) {
  check_options(options);
  const PlanGraph graph = make_graph(profile);
  const int size = static_cast<int>(profile.micro_batch_sizes.front());
  const PricedModel model = price_model(profile, std::vector<int>{size}, {});
  std::vector<std::int64_t> outputs;
  for (const LayerPrice& layer : model.layers) outputs.push_back(layer.output);
  const std::vector<LinearOrder> orders = linear_orders(graph, outputs);

  Best best;
  for (const LinearOrder& order : orders) {
    const Chain chain = make_chain(graph, order.layers, model.layers, model.loss, {});
    const Recurrence recurrence(chain, options);
    best.bound = order_free_bound(chain, recurrence, options.machines);
    const int fewest = options.rule == MachinesRule::exactly ? options.machines : 1;
    for (int machines = fewest; machines <= options.machines; ++machines) {
      if (!(recurrence.objective(machines) < best.objective)) continue;
      best.objective = recurrence.objective(machines);
      best.partition = recurrence.partition(machines);
      best.stages = stages_of(graph, order, recurrence, best.partition);
    }
  }
  if (best.partition.empty()) {
    Infeasible none;
    none.reason =
        "does not fit: no partition over " + std::to_string(options.machines) +
        " machines passes the memory test of pipedream-code" +
        (options.memory_limit ? " with " + std::to_string(options.memory_limit->value) + " bytes" : "");
    return none;
  }
  PipedreamResult result{profile.model.name,      options, best.stages, cuts_of(best.partition),
                         Seconds(best.objective), {},      {}};
  const bool chain = orders.size() == 1;
  result.lower_bound = Seconds(chain ? best.objective : std::min(best.bound, best.objective));
  result.search = "exact over " + std::to_string(orders.size()) + (chain ? " layer order" : " layer orders");
  return result;
}

Json to_json(const PipedreamResult& result, Seconds elapsed) {
  Json json{{"cost_model", "pipedream-code"},
            {"model", result.profile},
            {"machines", result.options.machines},
            {"machines_rule", name_of(result.options.rule)},
            {"bandwidth_bytes_per_s", result.options.bandwidth.value}};
  json["stages"] = Json::array();
  for (const PipedreamStage& stage : result.stages) {
    json["stages"].push_back(
        {{"layers", stage.layers}, {"replicas", stage.replicas}, {"time_s", stage.time.count()}});
  }
  json["cuts"] = result.cuts;
  json["replicas"] = replicas_text(result);
  json["certificate"] = {{"objective_s", result.objective.count()},
                         {"lower_bound_s", result.lower_bound.count()},
                         {"gap", result.objective / result.lower_bound - 1},
                         {"search", result.search}};
  json["search"] = {{"seconds", elapsed.count()}};
  return json;
}

std::string replicas_text(const PipedreamResult& result) {
  std::string text;
  for (const PipedreamStage& stage : result.stages) {
    text.append(text.empty() ? "" : "-").append(std::to_string(stage.replicas));
  }
  return text;
}

}  // namespace pp::plan
